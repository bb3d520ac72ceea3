/** The contract of `storage/event-log.ts` as tests. A store is whatever passes. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { EventLog, SessionAppend, SessionRow } from '../../storage/event-log.ts';
import { sessionRow } from '../support/session-row.ts';

export interface LogUnderTest {
  open(): Promise<EventLog>;
  /** False when a log cannot be opened a second time with what the first wrote. */
  readonly durable: boolean;
}

function records(...texts: string[]): Buffer[] {
  return texts.map((text) => Buffer.from(text));
}

function append(num: number, firstSeq: number, ...texts: string[]): SessionAppend {
  return { num, firstSeq, records: records(...texts) };
}

function read(log: EventLog, num: number, from = 1, to = Number.MAX_SAFE_INTEGER): string[] {
  const seen: string[] = [];
  const outcome = log.scan(num, from, to, (seq, record, length) => {
    seen.push(`${seq}:${record.latin1Slice(0, length)}`);
    return true;
  });
  expect(outcome).toEqual({ outcome: 'end' });
  return seen;
}

async function commit(log: EventLog, appends: SessionAppend[], rows: SessionRow[] = []): Promise<void> {
  expect(await log.commit({ appends, rows })).toEqual({ outcome: 'committed' });
}

export function eventLogContract(name: string, make: () => LogUnderTest): void {
  describe(`event log contract: ${name}`, () => {
    let under: LogUnderTest;
    let log: EventLog;
    beforeEach(async () => {
      under = make();
      log = await under.open();
    });
    afterEach(async () => {
      await log.close();
    });

    it('is empty when it is new', () => {
      expect([...log.rows()]).toEqual([]);
      expect(log.row('nobody')).toBeUndefined();
      expect(log.lastSeq(1)).toBe(0);
      expect(read(log, 1)).toEqual([]);
      expect(log.storeId).toMatch(/^[a-z0-9]{1,32}$/);
      expect(log.lowOnSpace).toBe(false);
    });

    it('returns the records of a session in order, by range', async () => {
      await commit(log, [append(1, 1, 'a', 'b')], [sessionRow(1)]);
      await commit(log, [append(1, 3, 'c')]);
      expect(read(log, 1)).toEqual(['1:a', '2:b', '3:c']);
      expect(read(log, 1, 2)).toEqual(['2:b', '3:c']);
      expect(read(log, 1, 2, 2)).toEqual(['2:b']);
      expect(read(log, 1, 4)).toEqual([]);
      expect(log.lastSeq(1)).toBe(3);
    });

    it('keeps sessions apart, also next to each other on disk', async () => {
      await commit(
        log,
        [append(1, 1, 'a'), append(2, 1, 'x', 'y'), append(3, 1, 'q')],
        [1, 2, 3].map((n) => sessionRow(n)),
      );
      expect([1, 2, 3, 4].map((num) => log.lastSeq(num))).toEqual([1, 2, 1, 0]);
      expect(read(log, 2)).toEqual(['1:x', '2:y']);
    });

    it('shows nothing of a commit before it has settled', async () => {
      const committing = log.commit({ appends: [append(1, 1, 'a')], rows: [sessionRow(1)] });
      expect(log.lastSeq(1)).toBe(0);
      expect(log.row('session-1')).toBeUndefined();
      expect(read(log, 1)).toEqual([]);
      expect(await committing).toEqual({ outcome: 'committed' });
      expect(read(log, 1)).toEqual(['1:a']);
      expect(log.row('session-1')).toEqual(sessionRow(1));
    });

    it('stops a scan when the visitor says so', async () => {
      await commit(log, [append(1, 1, 'a', 'b', 'c')]);
      const seen: number[] = [];
      const outcome = log.scan(1, 1, 3, (seq) => {
        seen.push(seq);
        return seq < 2;
      });
      expect(outcome).toEqual({ outcome: 'end' });
      expect(seen).toEqual([1, 2]);
    });

    it('holds records of any size', async () => {
      const sizes = [1, 36, 2000, 4096, 40_000, 70_000, 1_000_000, 17_000_000, 5];
      await commit(log, [{ num: 1, firstSeq: 1, records: sizes.map((size, i) => Buffer.alloc(size, i + 1)) }]);
      const seen: [number, boolean][] = [];
      log.scan(1, 1, sizes.length, (seq, record, length) => {
        const whole = record.subarray(0, length);
        const filled = whole.length === length && whole.every((byte) => byte === seq);
        seen.push([length, Buffer.isBuffer(record) && filled]);
        return true;
      });
      expect(seen).toEqual(sizes.map((size) => [size, true]));
    });

    it('[EV1] refuses records that do not follow the last one, and writes nothing of that batch', async () => {
      await commit(log, [append(1, 1, 'a')]);
      for (const first of [1, 3]) {
        const broken = { appends: [append(2, 1, 'x'), append(1, first, 'b')], rows: [sessionRow(2)] };
        expect(() => log.commit(broken)).toThrow(/session 1 is at 1/);
      }
      await commit(log, [append(1, 2, 'b')]);
      expect(read(log, 2)).toEqual([]);
      expect(read(log, 1)).toEqual(['1:a', '2:b']);
    });

    it('refuses a second commit while one is in flight', async () => {
      const first = log.commit({ appends: [append(1, 1, 'a')], rows: [] });
      expect(() => log.commit({ appends: [append(2, 1, 'b')], rows: [] })).toThrow(/in flight/);
      expect(await first).toEqual({ outcome: 'committed' });
    });

    it('replaces a row and keeps every member of it', async () => {
      const row = sessionRow(7, {
        title: 'naïve \u{1f600}',
        additionalDirectories: ['/a', '/b'],
        bound: ['x'],
        closed: true,
        tombstone: true,
      });
      await commit(log, [], [sessionRow(7)]);
      await commit(log, [], [row]);
      expect([...log.rows()]).toEqual([row]);
      expect(log.row(row.sessionId)).toEqual(row);
    });

    it('tells any two session ids apart and refuses impossible ones', async () => {
      const ids = [
        'a',
        'A',
        'a b',
        'é',
        'e\u0301',
        '\ud83d',
        '\ude00',
        '\ud83d\ude00',
        '\ufffd',
        '../x',
        '€'.repeat(512),
      ];
      const rows = ids.map((sessionId, i) => sessionRow(i + 1, { sessionId }));
      await commit(log, [], rows);
      expect(ids.map((id) => log.row(id)?.num)).toEqual(ids.map((_, i) => i + 1));
      for (const sessionId of ['', 'a'.repeat(513), 'a\u0000', 'a\nb']) {
        expect(() => log.commit({ appends: [], rows: [sessionRow(99, { sessionId })] })).toThrow(RangeError);
      }
    });

    it('gives every new session a number of its own', async () => {
      const first = log.nextNum();
      await commit(log, [append(first, 1, 'a')], [sessionRow(first)]);
      await commit(log, [], [sessionRow(first + 10)]);
      expect(log.nextNum()).toBe(first + 11);
      expect(log.nextNum()).toBe(first + 12);
    });

    it('reads the early events of a fork from its parent, over two generations', async () => {
      await commit(log, [append(1, 1, 'a', 'b', 'c')], [sessionRow(1)]);
      expect(log.lastSeq(2)).toBe(0);
      await commit(log, [], [sessionRow(2, { base: { num: 1, seq: 2 } })]);
      expect(log.lastSeq(2)).toBe(2);
      await commit(log, [append(2, 3, 'x', 'y'), append(1, 4, 'd')]);
      await commit(log, [append(3, 5, 'q')], [sessionRow(3, { base: { num: 2, seq: 4 } })]);
      expect(read(log, 2)).toEqual(['1:a', '2:b', '3:x', '4:y']);
      expect(read(log, 3)).toEqual(['1:a', '2:b', '3:x', '4:y', '5:q']);
      expect(read(log, 3, 2, 3)).toEqual(['2:b', '3:x']);
      expect(read(log, 1)).toEqual(['1:a', '2:b', '3:c', '4:d']);
    });

    it('removes events, in the same commit as everything else, and can put a record in their place', async () => {
      await commit(log, [append(1, 1, 'a', 'b', 'c', 'd', 'e'), append(2, 1, 'x')], [sessionRow(1)]);
      const rows = [sessionRow(1, { low: 3 })];
      const removals = [
        { num: 1, from: 1, to: 3, pruned: Buffer.from('P') },
        { num: 2, from: 1, to: 9 },
      ];
      const batch = { appends: [append(1, 6, 'f')], rows, removals };
      expect(await log.commit(batch)).toEqual({ outcome: 'committed' });
      expect(read(log, 1, 3)).toEqual(['3:P', '4:d', '5:e', '6:f']);
      expect(log.scan(1, 1, 2, () => true)).toEqual({ outcome: 'gap', seq: 1 });
      expect(log.scan(2, 1, 1, () => true)).toEqual({ outcome: 'gap', seq: 1 });
      expect(log.row('session-1')?.low).toBe(3);
      expect(log.lastSeq(1)).toBe(6);
      expect([1, 3, 6, 7].map((from) => log.firstStored(1, from))).toEqual([3, 3, 6, undefined]);
      expect(log.firstStored(2, 1)).toBeUndefined();
      await commit(log, [append(7, 1, 'x'), append(5, 1, 'y')]);
      expect(log.storedNums()).toEqual([1, 5, 7]);
    });

    it('[RT6] forgets deleted sessions, in one commit with everything else, and knows their ids', async () => {
      const rows = [1, 2, 3].map((num) => sessionRow(num, { tombstone: true, bound: [`agent-${num}`, 'both'] }));
      await commit(log, [append(4, 1, 'a')], [...rows, sessionRow(4)]);
      const ids = ['session-1', 'agent-1', 'session-2', 'agent-2', 'both', 'session-3', 'agent-3', 'session-4', 'x'];
      const forgotten = (): string[] => ids.filter((id) => log.isForgotten(id));
      const forgetting = log.commit({ appends: [append(4, 2, 'b')], rows: [], forgets: ['session-1'] });
      expect([forgotten(), log.row('session-1')]).toEqual([[], rows[0]]);
      expect(await forgetting).toEqual({ outcome: 'committed' });
      expect(forgotten()).toEqual(['session-1', 'agent-1', 'both']);
      expect(read(log, 4)).toEqual(['1:a', '2:b']);
      expect(await log.commit({ appends: [], rows: [], forgets: ['session-3'] })).toEqual({ outcome: 'committed' });
      expect(forgotten()).toEqual(['session-1', 'agent-1', 'both', 'session-3', 'agent-3']);
      expect([...log.rows()].map(({ num }) => num)).toEqual([2, 4]);
      expect(log.nextNum()).toBe(5);
    });

    it('refuses to forget a session that is not deleted, and writes nothing of that batch', async () => {
      await commit(log, [], [sessionRow(1), sessionRow(2, { tombstone: true })]);
      for (const id of ['session-1', 'nobody']) {
        const forgets = ['session-2', id];
        expect(() => log.commit({ appends: [], rows: [sessionRow(3)], forgets })).toThrow(/not a deleted one/);
      }
      await commit(log, [append(1, 1, 'a')]);
      expect(log.isForgotten('session-2')).toBe(false);
      expect([...log.rows()].map(({ num }) => num)).toEqual([1, 2]);
    });

    it('[RT6] lets a session have the id of a forgotten one, under a number of its own', async () => {
      await commit(log, [], [sessionRow(7, { sessionId: 'again', tombstone: true })]);
      const late = sessionRow(7, { sessionId: 'again', tombstone: true, bound: ['late'] });
      // A row that is written in the same commit stays.
      expect(await log.commit({ appends: [], rows: [late], forgets: ['again'] })).toEqual({ outcome: 'committed' });
      expect(log.row('again')).toEqual(late);
      await log.commit({ appends: [], rows: [], forgets: ['again'] });
      const row = sessionRow(log.nextNum(), { sessionId: 'again' });
      await commit(log, [append(8, 1, 'a')], [row]);
      expect([...log.rows()]).toEqual([sessionRow(8, { sessionId: 'again' })]);
      expect(read(log, 8)).toEqual(['1:a']);
      expect(['again', 'late'].map((id) => log.isForgotten(id))).toEqual([true, true]);
    });

    it('prefetches any range', async () => {
      await commit(log, [append(1, 1, ...Array.from({ length: 600 }, (_, i) => `r${i}`))]);
      await log.prefetch(1, 1, 10_000);
      await log.prefetch(1, 5, 4);
      await log.prefetch(9, 1, 4);
      expect(read(log, 1)).toHaveLength(600);
    });

    it('has everything, and the same store id, when it is opened again', async () => {
      if (!under.durable) return;
      await commit(log, [append(1, 1, 'a', 'b'), append(9, 1, 'orphan')], [sessionRow(1), sessionRow(2)]);
      const { storeId } = log;
      await log.close();
      log = await under.open();
      expect(log.storeId).toBe(storeId);
      expect([...log.rows()].map((row) => row.num)).toEqual([1, 2]);
      expect(read(log, 1)).toEqual(['1:a', '2:b']);
      // 9 has events but no row; its number must not be given to anybody else.
      expect(log.nextNum()).toBe(10);
      await commit(log, [append(1, 3, 'c')]);
      expect(read(log, 1)).toEqual(['1:a', '2:b', '3:c']);
    });

    it('[RT6] knows forgotten ids, and gives nobody their numbers, when it is opened again', async () => {
      if (!under.durable) return;
      await commit(log, [], [sessionRow(1), sessionRow(5, { tombstone: true, bound: ['agent-5'] })]);
      await log.commit({ appends: [], rows: [], forgets: ['session-5'] });
      await log.close();
      log = await under.open();
      expect(['session-5', 'agent-5', 'session-1'].map((id) => log.isForgotten(id))).toEqual([true, true, false]);
      expect([...log.rows()]).toEqual([sessionRow(1)]);
      expect(log.nextNum()).toBe(6);
    });
  });
}
