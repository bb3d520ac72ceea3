import { expect, it } from 'vitest';
import { decodeRecord } from '../../storage/event-codec.ts';
import { openLmdbEventLog } from '../../storage/lmdb-event-log.ts';
import { testScope } from '../support/scope.ts';
import { startStoreProcess } from '../support/store-process.ts';
import { tempDir } from '../support/temp-dir.ts';
import { waitFor } from '../support/wait-for.ts';

const SESSIONS = 3;

/** Reads the whole log back and checks every record; returns the last seq of each session. */
async function verify(dir: string): Promise<number[]> {
  const log = await openLmdbEventLog(dir, { minFreeBytes: 0, ballastBytes: 1024 });
  const heads: number[] = [];
  for (let num = 1; num <= SESSIONS; num++) {
    let expected = 1;
    const outcome = log.scan(num, 1, Number.MAX_SAFE_INTEGER, (seq, record, length) => {
      const event = decodeRecord(record, length, seq);
      if ('unreadable' in event) throw new Error(`session ${num} event ${seq}: ${event.detail}`);
      expect(JSON.parse(event.payload)).toMatchObject({ num, seq });
      expect(seq).toBe(expected++);
      return true;
    });
    expect(outcome).toEqual({ outcome: 'end' });
    expect(log.lastSeq(num)).toBe(expected - 1);
    // The row was written in the same commits: it names the head before the last one of them.
    if (expected > 1) expect(log.row(`session-${num}`)?.updatedAt).toBeLessThan(log.lastSeq(num));
    heads.push(log.lastSeq(num));
  }
  await log.close();
  return heads;
}

it('nothing that was acknowledged is lost in ten kills, and no session has a gap', async () => {
  const scope = testScope();
  const dir = tempDir(scope);
  let survived = Array.from({ length: SESSIONS }, () => 0);
  for (let round = 0; round < 10; round++) {
    const writer = startStoreProcess(scope, ['append', dir, String(SESSIONS)]);
    // A writer finds exactly what the check before it found: repair and reading change nothing.
    expect(await writer.first()).toEqual({ ready: survived });
    const enough = 1 + SESSIONS * (5 + 13 * round);
    await waitFor(`${enough} lines of the writer`, () => writer.lines.length >= enough);
    await writer.kill();
    const acknowledged = [...survived];
    for (const line of writer.lines.slice(1) as [number, number][]) acknowledged[line[0] - 1] = line[1];
    survived = await verify(dir);
    for (let i = 0; i < SESSIONS; i++) expect(survived[i]).toBeGreaterThanOrEqual(acknowledged[i] as number);
  }
  expect(Math.min(...survived)).toBeGreaterThan(300);
});
