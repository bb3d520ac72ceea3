/** Which deleted sessions are forgotten, and when: behind a sweep, beside forks and full disks. */
import { afterEach, expect, it } from 'vitest';
import { sweep, sweepAll } from '../../../proxy/control/store-host.ts';
import type { CommitBatch, EventLog, SessionRow } from '../../../storage/event-log.ts';
import { GroupCommit } from '../../../storage/group-commit.ts';
import { openLmdbEventLog } from '../../../storage/lmdb-event-log.ts';
import { MemoryEventLog } from '../../../storage/memory-event-log.ts';
import { verifyStore } from '../../../storage/verify.ts';
import { testScope } from '../../support/scope.ts';
import { sessionRow } from '../../support/session-row.ts';
import { tempDir } from '../../support/temp-dir.ts';

const KEPT = 4096;

function tombstones(count: number, changes: (num: number) => Partial<SessionRow> = () => ({})): SessionRow[] {
  return Array.from({ length: count }, (_, i) => {
    const num = i + 1;
    return sessionRow(num, { tombstone: true, bound: [`agent-${num}`], ...changes(num) });
  });
}

/** A commit that breaks the log's contract fails the test. */
function commitOf(log: EventLog): GroupCommit {
  const onFailed = (message: string): void => void failures.push(message);
  return new GroupCommit(log, { onFailed, after: (_ms, task) => setImmediate(task) });
}

const failures: string[] = [];
afterEach(() => expect(failures.splice(0)).toEqual([]));

const nums = (log: EventLog): number[] => [...log.rows()].map(({ num }) => num);
const range = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, i) => from + i);
const forgets = (batches: readonly CommitBatch[]): number[] => batches.flatMap((batch) => batch.forgets?.length ?? []);

it('[RT6] so many are kept; when one more is deleted the older half goes, in one commit', async () => {
  const log = new MemoryEventLog();
  // The later their number the longer ago.
  const rows = tombstones(KEPT, (num) => ({ updatedAt: 10_000 - num }));
  await log.commit({ appends: [], rows });
  await sweep({ log, commit: commitOf(log) }, [1]);
  expect(nums(log)).toHaveLength(KEPT);
  await log.commit({ appends: [], rows: [sessionRow(KEPT + 1, { tombstone: true, updatedAt: 10_000 })] });
  await sweep({ log, commit: commitOf(log) }, [KEPT + 1]);
  expect(nums(log)).toEqual([...range(1, KEPT / 2), KEPT + 1]);
  expect(forgets(log.batches)).toEqual([KEPT / 2]);
  const hidden = (num: number): boolean[] => [`session-${num}`, `agent-${num}`].map((id) => log.isForgotten(id));
  expect([KEPT / 2, KEPT / 2 + 1, KEPT].map(hidden)).toEqual([
    [false, false],
    [true, true],
    [true, true],
  ]);
});

it('[RT6] the many that an earlier version has left go too, for good, and the store stays whole', async () => {
  const scope = testScope();
  const dir = tempDir(scope);
  const small = { minFreeBytes: 0, ballastBytes: 1024 };
  const log = await openLmdbEventLog(dir, small);
  await log.commit({ appends: [], rows: tombstones(3 * KEPT) });
  await sweepAll({ log, commit: commitOf(log) });
  expect(nums(log).toSorted((a, b) => a - b)).toEqual(range(2 * KEPT + 1, 3 * KEPT));
  await log.close();
  const again = await openLmdbEventLog(dir, small);
  scope.defer(() => again.close());
  expect(nums(again)).toHaveLength(KEPT);
  const known = (num: number): boolean => again.isForgotten(`session-${num}`) && again.isForgotten(`agent-${num}`);
  expect(range(1, 3 * KEPT).filter(known)).toEqual(range(1, 2 * KEPT));
  expect(again.nextNum()).toBe(3 * KEPT + 1);
  expect((await verifyStore({ log: again, found: () => undefined })).findings).toBe(0);
});

it('[RT6] a row stays that a fork reads through, that is open, or whose events are not all gone', async () => {
  const log = new MemoryEventLog();
  // 2 is a fork of 1, and of 2 there is another one: it has no event of its own left.
  const rows = tombstones(KEPT + 1, (num) => (num === 2 ? { base: { num: 1, seq: 1 } } : {}));
  const events = [1, 3].map((num) => ({ num, firstSeq: 1, records: [Buffer.from('shared, or not removed yet')] }));
  await log.commit({ appends: events, rows: [...rows, sessionRow(9000, { base: { num: 2, seq: 1 } })] });
  await log.commit({ appends: [{ num: 9000, firstSeq: 2, records: [Buffer.from('own')] }], rows: [] });
  const open = [{ row: log.row('session-4') as SessionRow }];
  await sweep({ log, commit: commitOf(log), registry: { open: () => open } }, [2]);
  // 5 to 2052 went.
  expect(nums(log)).toEqual([1, 2, 3, 4, ...range(KEPT / 2 + 5, KEPT + 1), 9000]);
  expect(log.scan(9000, 1, 2, () => true)).toEqual({ outcome: 'end' });
});

it('[RT6] what a full disk refuses is left for the next time, and two do not do it at once', async () => {
  const log = new MemoryEventLog();
  const commit = commitOf(log);
  await log.commit({ appends: [], rows: tombstones(KEPT + 1) });
  // The first commit of a sweep only waits for what came before.
  const committing = log.commit.bind(log);
  log.commit = (batch) => {
    if (batch.forgets && forgets(log.batches).length === 0) log.failNext('no_space');
    return committing(batch);
  };
  await sweep({ log, commit }, [1]);
  expect(nums(log)).toHaveLength(KEPT + 1);
  expect(log.isForgotten('session-1')).toBe(false);
  await Promise.all([sweep({ log, commit }, [1]), sweep({ log, commit }, [2]), sweep({ log, commit }, [3])]);
  expect(nums(log)).toEqual(range(KEPT / 2 + 1, KEPT + 1));
  expect(forgets(log.batches)).toEqual([KEPT / 2, KEPT / 2]);
});

it('[RT6] one of which the agent was not told stays longer, but not for ever', async () => {
  const log = new MemoryEventLog();
  const rows = tombstones(4 * KEPT + 1, (num) => (num <= 10 ? { untold: 0 } : {}));
  await log.commit({ appends: [], rows: rows.slice(0, KEPT + 1) });
  await sweep({ log, commit: commitOf(log) }, [1]);
  expect(nums(log)).toEqual([...range(1, 10), ...range(KEPT / 2 + 11, KEPT + 1)]);
  await log.commit({ appends: [], rows: rows.slice(KEPT + 1).map((row) => ({ ...row, untold: 0 })) });
  await log.commit({
    appends: [],
    rows: Array.from({ length: KEPT }, (_, n) => sessionRow(20_000 + n, { tombstone: true, untold: 0 })),
  });
  await sweep({ log, commit: commitOf(log) }, [1]);
  expect(nums(log).length).toBeLessThanOrEqual(4 * KEPT);
  expect(log.isForgotten('session-1')).toBe(true);
});
