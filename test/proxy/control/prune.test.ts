/** Pruning beside forks: of forks, while forks are made, and cut off between its commits. */
import { expect, it } from 'vitest';
import { prune } from '../../../proxy/control/prune-command.ts';
import { sweep } from '../../../proxy/control/store-host.ts';
import { forkPoint } from '../../../proxy/session/fork-point.ts';
import { foldLog } from '../../../proxy/session/open-session.ts';
import { BulkSource } from '../../../storage/bulk-source.ts';
import { encodeRecord } from '../../../storage/event-codec.ts';
import type { EventLog, SessionRow } from '../../../storage/event-log.ts';
import { GroupCommit } from '../../../storage/group-commit.ts';
import { HistoryCache } from '../../../storage/history-cache.ts';
import { openLmdbEventLog } from '../../../storage/lmdb-event-log.ts';
import { MemoryEventLog } from '../../../storage/memory-event-log.ts';
import { prunedRecord } from '../../../storage/prune.ts';
import { repairEvents } from '../../../storage/repair.ts';
import { findCut } from '../../../storage/retention-plan.ts';
import { verifyStore } from '../../../storage/verify.ts';
import { testScope } from '../../support/scope.ts';
import { sessionRow } from '../../support/session-row.ts';
import { tempDir } from '../../support/temp-dir.ts';
import { promptEvent, textEvent, turnEnd, write, type WrittenEvent } from '../../support/written-log.ts';

/** Two events, then turns of three: 3 to 5, 6 to 8, ... */
function turns(count: number): WrittenEvent[] {
  return [
    { type: 'session_created', required: true, payload: '{}' },
    {
      type: 'session_bound',
      required: true,
      payload: '{"agentSessionId":"agent-1","how":"new","response":{}}',
    },
    ...Array.from({ length: count }, (_, i) => [
      promptEvent(`t${i}`, 'go'),
      textEvent(`${i}`),
      turnEnd(`t${i}`),
    ]).flat(),
  ];
}

function read(log: EventLog, { num, low }: SessionRow): unknown {
  let count = 0;
  const outcome = log.scan(num, low, log.lastSeq(num), () => ++count > 0);
  return outcome.outcome === 'end' ? count : outcome;
}

it('[RT4] a fork that is cut keeps its own forks whole, and what they read of its parent', async () => {
  const scope = testScope();
  const dir = tempDir(scope);
  const log = await openLmdbEventLog(dir);
  scope.defer(() => log.close());
  const commit = new GroupCommit(log, { onFailed: () => undefined });
  const history = new HistoryCache(log, tempDir(scope));
  const parent = sessionRow(1);
  const fork = sessionRow(2, { base: { num: 1, seq: 8 } });
  const grandchild = sessionRow(3, { base: { num: 2, seq: 11 } });
  await write(log, parent, turns(5));
  await write(log, fork, []);
  await write(log, fork, turns(5).slice(8));
  await write(log, grandchild, []);
  await write(log, grandchild, turns(5).slice(11));
  const host = { log, commit, history, now: () => 1 };
  await prune(host, { retention: { sessions: {}, events: { count: 3 } }, row: fork, dryRun: false }, () => undefined);
  const cut = log.row(fork.sessionId) as SessionRow;
  expect(cut.low).toBeGreaterThan(11);
  expect(read(log, grandchild)).toBe(17);
  // The parent goes: what the grandchild reads of it stays.
  await log.commit({ appends: [], rows: [{ ...parent, tombstone: true }] });
  await sweep({ log, commit }, [1]);
  expect(read(log, grandchild)).toBe(17);
  expect(log.firstStored(1, 9)).toBeUndefined();
  expect((await verifyStore({ log, found: () => undefined })).findings).toBe(0);
});

it('[RT4] a fork that is being made when its parent is swept keeps its events', async () => {
  const tasks: (() => void)[] = [];
  const log = new MemoryEventLog({ later: (task) => tasks.push(task) });
  const settle = async (until: Promise<unknown>): Promise<void> => {
    const over: unknown[] = [];
    void until.then(() => over.push(0));
    while (over.length === 0) {
      tasks.shift()?.();
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  // Its beginning has been cut off already.
  await settle(write(log, sessionRow(1, { low: 12 }), turns(5)));
  const commit = new GroupCommit(log, { onFailed: () => undefined });
  const other = new BulkSource(commit, 9, 0).run({ row: sessionRow(9) });
  const fork = sessionRow(2, { base: { num: 1, seq: 8 } });
  const records = [encodeRecord({ type: 'session_created', required: true, time: 1, payload: '{}' }, { boot: '' })];
  const made = new BulkSource(commit, 2, 8).run({ records, row: fork });
  await settle(Promise.all([other, made, sweep({ log, commit }, [1])]));
  expect(read(log, fork)).toBe(9);
  expect(log.firstStored(1, 9)).toBe(12);
});

it('[RT1] [SS5] a log whose beginning is being cut is repaired and forked as before', async () => {
  const log = new MemoryEventLog();
  const row = sessionRow(1);
  await write(log, row, turns(5));
  const cut = await findCut(log, row, { count: 6 }, { after: 0, upTo: Infinity, now: 1 });
  if (!cut) throw new Error('there is no cut');
  expect(cut.low).toBe(11);
  // The record is there, and the row that says so is not yet: the process may end here.
  await log.commit({ appends: [], rows: [], removals: [{ num: 1, from: 11, to: 11, pruned: prunedRecord(cut, 1) }] });
  const folded = foldLog(log, row);
  if ('error' in folded) throw new Error(folded.error.message);
  expect(repairEvents(folded.state, 'test')).toEqual([]);
  expect(folded.state.userMessages).toBe(5);
  expect(forkPoint(log, row, 17, undefined)).toEqual({ seq: 17, last: true });
  expect(forkPoint(log, row, 17, 'log1-14')).toEqual({ seq: 14, last: false });
  expect(forkPoint(log, row, 17, 'log1-11')).toEqual({ seq: 11, last: false });
});
