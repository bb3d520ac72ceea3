import { expect, it } from 'vitest';
import { openLmdbEventLog } from '../../storage/lmdb-event-log.ts';
import { testScope } from '../support/scope.ts';
import { startStoreProcess } from '../support/store-process.ts';
import { tempDir } from '../support/temp-dir.ts';
import { waitFor } from '../support/wait-for.ts';

it('[RT6] a deleted session has its row or is forgotten after each of twenty kills, never neither', async () => {
  const scope = testScope();
  const dir = tempDir(scope);
  let rowsLeft = 0;
  let deleted = 0;
  for (let round = 0; round < 20; round++) {
    const writer = startStoreProcess(scope, ['forget', dir]);
    await waitFor('some deletions', () => writer.lines.length > 1 + ((round * 5) % 7));
    await writer.kill();
    deleted = writer.lines.at(-1) as number;
    const log = await openLmdbEventLog(dir, { minFreeBytes: 0, ballastBytes: 1024 });
    for (let num = 1; num <= deleted; num++) {
      const row = log.row(`session-${num}`);
      const known = [`session-${num}`, `agent-${num}`].map((id) => log.isForgotten(id));
      expect([num, row?.tombstone, ...known]).toEqual(row ? [num, true, false, false] : [num, undefined, true, true]);
      if (row) rowsLeft++;
    }
    // No number is given twice.
    expect(log.nextNum()).toBeGreaterThan(deleted);
    await log.close();
  }
  expect(rowsLeft).toBeLessThan(deleted);
  expect(deleted).toBeGreaterThan(4000);
});
