import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { applyPruned, prunedPayload } from '../../protocol/v1/pruned-state.ts';
import { applyEvent, emptySessionState, type SessionState } from '../../protocol/v1/session-state.ts';
import { parseWire } from '../../protocol/wire-text.ts';
import { BulkSource } from '../../storage/bulk-source.ts';
import { resolveCursor } from '../../storage/cursor.ts';
import { decodeRecord } from '../../storage/event-codec.ts';
import type { EventLog, SessionRow } from '../../storage/event-log.ts';
import { GroupCommit } from '../../storage/group-commit.ts';
import { type LmdbStore, openLmdbEventLog } from '../../storage/lmdb-event-log.ts';
import { MemoryEventLog } from '../../storage/memory-event-log.ts';
import { prunedRecord, sharedUpTo } from '../../storage/prune.ts';
import { neededSegments, orphans, removeEvents, unneeded } from '../../storage/retention.ts';
import { findCut, type RetainPolicy, sessionsToPrune } from '../../storage/retention-plan.ts';
import { verifyStore } from '../../storage/verify.ts';
import { testScope } from '../support/scope.ts';
import { sessionRow } from '../support/session-row.ts';
import { tempDir } from '../support/temp-dir.ts';
import { promptEvent, textEvent, turnEnd, updateEvent, write, type WrittenEvent } from '../support/written-log.ts';

const DAY = 86_400_000;

describe('which sessions go', () => {
  const sessions = [5, 4, 3, 2, 1].map((num) => ({
    row: sessionRow(num, { updatedAt: num * DAY }),
    bytes: 100,
    idle: num !== 2,
  }));
  const gone = (policy: RetainPolicy): number[] => sessionsToPrune(sessions, policy, 5 * DAY).map(({ num }) => num);

  it('[RT1] none by default', () => expect(gone({})).toEqual([]));
  it('[RT2] by age', () => expect(gone({ ageMs: 1.5 * DAY })).toEqual([3, 1]));
  it('[RT2] by count, the newest stay, what is in use stays', () => expect(gone({ count: 2 })).toEqual([3, 1]));
  it('[RT2] by bytes', () => expect(gone({ bytes: 250 })).toEqual([3, 1]));
});

const CREATED: WrittenEvent = { type: 'session_created', required: true, payload: '{}' };
const BOUND: WrittenEvent = {
  type: 'session_bound',
  required: true,
  payload: '{"agentSessionId":"agent-1","how":"new","response":{"modes":{"a":1.0e9}}}',
};

/** Turns of four events each: 3 and 4 to 6, 7 to 10, ... */
function turns(count: number): WrittenEvent[] {
  return [
    CREATED,
    BOUND,
    ...Array.from({ length: count }, (_, i) => [
      {
        ...promptEvent(`t${i}`, `question ${i}`),
        payload: `{"facts":{"promptId":"p${i}","digest":"d${i}"},"prompt":[{"type":"text","text":"question ${i}"}]}`,
      },
      textEvent(`answer ${i} ${'x'.repeat(500)}`),
      updateEvent({ sessionUpdate: 'current_mode_update', currentModeId: `mode-${i}` }),
      turnEnd(`t${i}`),
    ]).flat(),
  ];
}

function commitOf(log: EventLog): GroupCommit {
  return new GroupCommit(log, { onFailed: () => undefined });
}

async function cut(
  log: EventLog,
  row: SessionRow,
  policy: RetainPolicy,
  upTo = Infinity,
  now = 10_000,
): Promise<SessionRow> {
  const found = await findCut(log, row, policy, { after: sharedUpTo(log, row), upTo, now });
  if (!found) return row;
  const cutRow = { ...row, low: found.low };
  const bulk = new BulkSource(commitOf(log), row.num, log.lastSeq(row.num));
  const removals = [{ num: row.num, from: found.low, to: found.low, pruned: prunedRecord(found, now) }];
  expect(await bulk.run({ row: cutRow, removals })).toEqual({ outcome: 'committed' });
  await removeEvents(bulk, unneeded(log, cutRow, neededSegments(log)));
  return cutRow;
}

function folded(log: EventLog, row: SessionRow): SessionState {
  const state = emptySessionState();
  log.scan(row.num, row.low, log.lastSeq(row.num), (seq, record, length) => {
    const event = decodeRecord(record, length, seq);
    if ('unreadable' in event) throw new Error(event.detail);
    applyEvent(state, { ...event, payload: () => event.payload });
    return true;
  });
  return state;
}

function gaps(log: EventLog, num: number, to: number): number[] {
  const missing: number[] = [];
  for (let seq = 1; seq <= to; seq++) if (log.scan(num, seq, seq, () => true).outcome === 'gap') missing.push(seq);
  return missing;
}

describe('which events go', () => {
  it('[RT1] a cut is at the end of a turn, leaves a record there, and the rest is untouched', async () => {
    const log = new MemoryEventLog();
    const row = sessionRow(1);
    await write(log, row, turns(5));
    const before = folded(log, row);
    // 22 events; the last 10 are to stay, so 12 may go: the turn that ends at 10 is the last whole one.
    const cutRow = await cut(log, row, { count: 10 });
    expect(cutRow.low).toBe(10);
    expect(gaps(log, 1, 22)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let first: unknown;
    log.scan(1, 10, 10, (seq, record, length) => {
      first = decodeRecord(record, length, seq);
      return false;
    });
    expect(first).toMatchObject({ type: 'pruned', required: true, synthetic: true });
    expect(parseWire((first as { payload: string }).payload)).toMatchObject({
      low: 10,
      events: 9,
      firstWords: 'question 0',
    });
    const after = folded(log, cutRow);
    expect(after.bound).toEqual(before.bound);
    expect(after.snapshots).toEqual(before.snapshots);
    expect(after.userMessages).toBe(before.userMessages);
    expect([...after.prompts.keys()]).toEqual([...before.prompts.keys()]);
    expect(after.prompts.get('p0')).toEqual({ turnId: 't0', digest: 'd0', ended: 10 });
    expect((await verifyStore({ log, found: () => undefined })).findings).toBe(0);
    // Again, and again later: one record stands for all.
    expect(await cut(log, cutRow, { count: 10 })).toBe(cutRow);
    await write(log, cutRow, turns(5).slice(2));
    const twice = await cut(log, cutRow, { count: 10 });
    expect(twice.low).toBe(30);
    expect(folded(log, twice).bound).toEqual(before.bound);
    expect(gaps(log, 1, 42)).toHaveLength(29);
  });

  it('[RT3] old cursors are expired, those behind the cut are good', async () => {
    const log = new MemoryEventLog();
    const row = sessionRow(1);
    await write(log, row, turns(5));
    const cutRow = await cut(log, row, { count: 10 });
    const resolved = (cursor: string): unknown => resolveCursor({ log, row: cutRow, boot: 'boot01', cursor });
    expect(resolved('log1-3')).toEqual({ reason: 'expired' });
    expect(resolved('log1-8')).toEqual({ reason: 'expired' });
    expect(resolved('log1-10')).toEqual({ ok: { seq: 10, offset: 0 } });
    expect(resolved('log1-15')).toEqual({ ok: { seq: 15, offset: 0 } });
  });

  it('[RT1] by age, by bytes, and never further than the slowest client', async () => {
    const log = new MemoryEventLog();
    const row = sessionRow(1);
    await write(log, row, turns(5));
    const low = async (policy: RetainPolicy, upTo = Infinity, now = 10_000): Promise<number | undefined> =>
      (await findCut(log, row, policy, { after: 0, upTo, now }))?.low;
    // The event of seq n is of the time 1000 + n.
    expect(await low({ ageMs: 100 }, Infinity, 1115)).toBe(14);
    expect(await low({ ageMs: 100 }, Infinity, 1102)).toBeUndefined();
    expect(await low({ bytes: 2000 })).toBe(14);
    expect(await low({ bytes: 1_000_000 })).toBeUndefined();
    expect(await low({ count: 1 })).toBe(18);
    expect(await low({ count: 1 }, 13)).toBe(10);
    expect(await low({ count: 22 })).toBeUndefined();
  });

  it('[RT1] not inside a turn, and not while an approval waits', async () => {
    const log = new MemoryEventLog();
    const row = sessionRow(1);
    const asked: WrittenEvent = {
      type: 'approval_requested',
      required: true,
      payload: '{"approvalId":"a","method":"m","params":{}}',
    };
    await write(log, row, [
      ...turns(1),
      promptEvent('open', 'x'),
      asked,
      textEvent('y'),
      turnEnd('other'),
      ...Array.from({ length: 20 }, () => textEvent('z')),
    ]);
    expect((await findCut(log, row, { count: 1 }, { after: 0, upTo: Infinity, now: 0 }))?.low).toBe(6);
  });

  it('[RT4] events shared with a fork stay while it needs them, also when their session is deleted', async () => {
    const log = new MemoryEventLog();
    const parent = sessionRow(1);
    const fork = sessionRow(2, { base: { num: 1, seq: 14 } });
    await write(log, parent, turns(5));
    await write(log, fork, []);
    await write(log, fork, turns(5).slice(2));
    const read = (row: SessionRow): number => {
      let count = 0;
      expect(log.scan(row.num, row.low, log.lastSeq(row.num), () => ++count > 0)).toEqual({ outcome: 'end' });
      return count;
    };
    expect(read(fork)).toBe(34);
    // The parent may only be cut behind what it shares.
    expect(
      (await findCut(log, parent, { count: 10 }, { after: sharedUpTo(log, parent), upTo: Infinity, now: 0 }))?.low,
    ).toBeUndefined();
    const cutParent = await cut(log, parent, { count: 2 });
    expect(cutParent.low).toBe(18);
    expect(read(fork)).toBe(34);
    expect(gaps(log, 1, 22)).toEqual([15, 16, 17]);
    // Deleted: only what the fork reads is left.
    const tombstone = { ...cutParent, tombstone: true };
    await log.commit({ appends: [], rows: [tombstone] });
    await removeEvents(new BulkSource(commitOf(log), 1, 22), unneeded(log, tombstone, neededSegments(log)));
    expect(gaps(log, 1, 22)).toEqual([15, 16, 17, 18, 19, 20, 21, 22]);
    expect(read(fork)).toBe(34);
    // Cut behind its beginning, the fork needs nothing of its parent any more.
    const cutFork = await cut(log, fork, { count: 2 });
    expect(read(cutFork)).toBeLessThan(10);
    await removeEvents(new BulkSource(commitOf(log), 1, 22), unneeded(log, tombstone, neededSegments(log)));
    expect(gaps(log, 1, 22)).toHaveLength(22);
    expect((await verifyStore({ log, found: () => undefined })).findings).toBe(0);
  });

  it('[RT5] events of a session that was never made are found by the next process, and not by the one that makes it', async () => {
    const dir = join(tempDir(testScope()), 'store');
    const open = (): Promise<LmdbStore> => openLmdbEventLog(dir, { minFreeBytes: 0, ballastBytes: 1024 });
    let log = await open();
    const cutOff = log.nextNum();
    const records = [prunedRecord({ low: 1, payload: '{}' }, 0)];
    await log.commit({ appends: [{ num: cutOff, firstSeq: 1, records }], rows: [] });
    await write(log, sessionRow(log.nextNum()), [CREATED]);
    await log.commit({ appends: [], rows: [{ ...sessionRow(log.nextNum()), tombstone: true }] });
    // An import has its events in the log before its row.
    expect(orphans(log)).toEqual([]);
    await log.close();
    log = await open();
    const importing = log.nextNum();
    await log.commit({ appends: [{ num: importing, firstSeq: 1, records }], rows: [] });
    expect(orphans(log)).toEqual([cutOff]);
    await log.close();
  });

  it('[RT5] the space of what was pruned is used again', async () => {
    const dir = join(tempDir(testScope()), 'store');
    const log = await openLmdbEventLog(dir, { minFreeBytes: 0, ballastBytes: 1024 });
    let row = sessionRow(1);
    await write(log, row, [CREATED, BOUND]);
    const sizes: number[] = [];
    for (let round = 0; round < 8; round++) {
      const events = Array.from({ length: 300 }, (_, i) => {
        const turn = `t${round}-${i}`;
        return [promptEvent(turn, 'q'), textEvent('y'.repeat(3000)), turnEnd(turn)];
      });
      await write(log, row, events.flat());
      row = await cut(log, row, { count: 100 });
      sizes.push(log.bytes());
    }
    expect(log.lastSeq(1) - row.low).toBeLessThan(110);
    // 7 MB of events went through it.
    expect(Math.max(...sizes.slice(2))).toBeLessThanOrEqual((sizes[1] as number) * 1.2);
    await log.close();
  });
});

it('[RT1] what a pruned event keeps folds to the state that it was made of', () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.string({ minLength: 1, unit: 'grapheme' }), fc.string()), { maxLength: 5 }),
      fc.option(fc.string({ unit: 'grapheme' }), { nil: undefined }),
      fc.nat(20),
      (prompts, title, userMessages) => {
        const state = emptySessionState();
        for (const [id, digest] of prompts) state.prompts.set(id, { turnId: `turn ${id}`, digest, ended: 7 });
        state.title = title;
        state.userMessages = userMessages;
        state.children.add('child');
        state.bound = { agentSessionId: 'a"', how: 'loaded', response: '{"n": 1.0e400}', proven: true };
        state.snapshots.set(9, '{"sessionUpdate":"current_mode_update" , "currentModeId":"a]"}');
        const again = emptySessionState();
        applyPruned(again, 7, prunedPayload(state, { low: 7, events: 6, firstWords: title }));
        expect(again).toEqual({ ...state, pruned: true });
      },
    ),
  );
});
