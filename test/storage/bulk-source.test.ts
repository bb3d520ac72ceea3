import { expect, it } from 'vitest';
import { BulkSource } from '../../storage/bulk-source.ts';
import { GroupCommit } from '../../storage/group-commit.ts';
import { MemoryEventLog } from '../../storage/memory-event-log.ts';
import { sessionRow } from '../support/session-row.ts';

const records = (count: number): Buffer[] => Array.from({ length: count }, (_, i) => Buffer.from(`r${i}`));

it('bulk work is written in several commits, its row with the last', async () => {
  const log = new MemoryEventLog();
  const commit = new GroupCommit(log, { onFailed: () => undefined, maxRecords: 10 });
  const bulk = new BulkSource(commit, 1, 0);
  const row = sessionRow(1);
  expect(await bulk.run({ records: records(25), row })).toEqual({ outcome: 'committed' });
  expect(log.batches.map((batch) => [batch.appends[0]?.records.length, batch.rows.length])).toEqual([
    [10, 0],
    [10, 0],
    [5, 1],
  ]);
  expect(bulk.head).toBe(25);
  const pruned = Buffer.from('P');
  const removals = [{ num: 1, from: 1, to: 5, pruned }];
  expect(await bulk.run({ removals, row: { ...row, low: 5 } })).toEqual({ outcome: 'committed' });
  expect(log.batches.at(-1)).toEqual({ appends: [], rows: [{ ...row, low: 5 }], removals });
  const tombstone = { ...row, tombstone: true };
  expect(await bulk.run({ row: tombstone })).toEqual({ outcome: 'committed' });
  expect(await bulk.run({ forgets: ['session-1'] })).toEqual({ outcome: 'committed' });
  expect(log.batches.at(-1)).toEqual({ appends: [], rows: [], forgets: ['session-1'] });
  expect(await bulk.run({})).toEqual({ outcome: 'committed' });
  await commit.idle();
});

it('bulk work that meets a full disk is given up, not tried again', async () => {
  const log = new MemoryEventLog();
  const later: (() => void)[] = [];
  const commit = new GroupCommit(log, { onFailed: () => undefined, after: (_ms, task) => later.push(task) });
  log.failNext('no_space');
  const bulk = new BulkSource(commit, 1, 0);
  expect((await bulk.run({ records: records(3), row: sessionRow(1) })).outcome).toBe('not_committed');
  for (const task of later) task();
  await commit.idle();
  expect(log.lastSeq(1)).toBe(0);
  expect(log.row('session-1')).toBeUndefined();
  expect(await bulk.run({ records: records(3) })).toEqual({ outcome: 'committed' });
});
