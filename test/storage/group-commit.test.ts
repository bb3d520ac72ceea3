import { describe, expect, it } from 'vitest';
import type { CommitOutcome, SessionRow } from '../../storage/event-log.ts';
import { type AppendSource, GroupCommit, type GroupCommitOptions } from '../../storage/group-commit.ts';
import { MemoryEventLog } from '../../storage/memory-event-log.ts';
import { sessionRow } from '../support/session-row.ts';

/** A source that keeps what it has to write in a list and what it is told in `told`. */
class ListSource implements AppendSource {
  readonly num: number;
  readonly waiting: string[] = [];
  row: SessionRow | undefined;
  head = 0;
  readonly #told: string[];
  onPublished: (() => void) | undefined;
  onSettled: ((outcome: CommitOutcome) => void) | undefined;

  constructor(num: number, told: string[] = []) {
    this.num = num;
    this.#told = told;
  }

  add(...texts: string[]): this {
    this.waiting.push(...texts);
    return this;
  }

  peek(maxRecords: number, maxBytes: number): readonly Buffer[] {
    const taken: Buffer[] = [];
    let bytes = 0;
    for (const text of this.waiting) {
      if (taken.length > 0 && (taken.length >= maxRecords || bytes + text.length > maxBytes)) break;
      taken.push(Buffer.from(text));
      bytes += text.length;
    }
    return taken;
  }

  peekRow(): SessionRow | undefined {
    return this.row;
  }

  settled(outcome: CommitOutcome, count: number, row: SessionRow | undefined): void {
    this.#told.push(`settled ${this.num} ${outcome.outcome} ${count}`);
    if (outcome.outcome === 'committed') {
      this.waiting.splice(0, count);
      this.head += count;
      if (row === this.row) this.row = undefined;
    }
    this.onSettled?.(outcome);
  }

  published(): void {
    this.#told.push(`published ${this.num}`);
    this.onPublished?.();
  }
}

/** A memory log whose commits end when the test says so, and a clock that the test turns. */
function setUp(options: Partial<GroupCommitOptions> = {}) {
  const ends: (() => void)[] = [];
  const timers: { delayMs: number; task: () => void }[] = [];
  const failed: string[] = [];
  const told: string[] = [];
  const log = new MemoryEventLog({ later: (task) => void ends.push(task) });
  const group = new GroupCommit(log, {
    onFailed: (message) => void failed.push(message),
    after: (delayMs, task) => void timers.push({ delayMs, task }),
    ...options,
  });
  const end = async (): Promise<void> => {
    const task = ends.shift();
    if (!task) throw new Error('no commit is in flight');
    task();
    for (let i = 0; i < 5; i++) await Promise.resolve();
  };
  const endAll = async (): Promise<void> => {
    while (ends.length > 0) await end();
  };
  const stored = (num: number): string[] => {
    const texts: string[] = [];
    const outcome = log.scan(num, 1, 1e9, (_seq, record, length) => texts.push(record.latin1Slice(0, length)) > 0);
    expect(outcome).toEqual({ outcome: 'end' });
    return texts;
  };
  return { log, group, ends, timers, failed, told, end, endAll, stored };
}

describe('group commit', () => {
  it('begins the first commit inside the offer, and has one in flight', async () => {
    const { group, log, ends, endAll, stored } = setUp();
    const source = new ListSource(1).add('a');
    group.offer(source);
    expect(log.batches).toHaveLength(1);
    expect(group.inFlight).toBe(true);
    source.add('b', 'c');
    group.offer(source);
    group.offer(new ListSource(2).add('x'));
    expect(ends).toHaveLength(1);
    await endAll();
    expect(
      log.batches.map((batch) => batch.appends.map(({ num, firstSeq, records }) => [num, firstSeq, records.length])),
    ).toEqual([
      [[1, 1, 1]],
      [
        [1, 2, 2],
        [2, 1, 1],
      ],
    ]);
    expect(stored(1)).toEqual(['a', 'b', 'c']);
    expect(group.inFlight).toBe(false);
    expect(group.stats).toEqual({ commits: 2, records: 4, bytes: 4, notCommitted: 0 });
  });

  it('tells every source first, starts the next commit, and then lets them publish', async () => {
    const { group, log, end, told } = setUp();
    const [one, two] = [new ListSource(1, told).add('a'), new ListSource(2, told).add('x')];
    group.offer(one);
    group.offer(two);
    await end();
    expect(told.splice(0)).toEqual(['settled 1 committed 1', 'published 1']);
    one.add('b');
    group.offer(one);
    let begunBeforePublish = 0;
    two.onPublished = () => (begunBeforePublish = log.batches.length);
    await end();
    expect(told).toEqual(['settled 2 committed 1', 'published 2']);
    expect(begunBeforePublish).toBe(3);
  });

  it('takes what a source offers while it is told, and while it publishes, into the next commit', async () => {
    const { group, log, endAll, stored } = setUp();
    const source = new ListSource(1).add('a');
    source.onSettled = () => {
      source.onSettled = undefined;
      group.offer(source.add('b'));
    };
    source.onPublished = () => {
      source.onPublished = undefined;
      group.offer(source.add('c'));
    };
    group.offer(source);
    await endAll();
    expect(stored(1)).toEqual(['a', 'b', 'c']);
    expect(log.batches).toHaveLength(3);
  });

  it('writes a row alone, and with the records', async () => {
    const { group, log, endAll } = setUp();
    const source = new ListSource(1);
    source.row = sessionRow(1);
    group.offer(source);
    await endAll();
    expect(log.row('session-1')).toEqual(sessionRow(1));
    source.add('a').row = sessionRow(1, { title: 't' });
    group.offer(source);
    await endAll();
    expect(log.batches[1]).toMatchObject({ appends: [{ num: 1 }], rows: [{ title: 't' }] });
    expect(log.batches).toHaveLength(2);
  });

  it('commits nothing for a source that has nothing', async () => {
    const { group, log } = setUp();
    group.offer(new ListSource(1));
    expect(log.batches).toEqual([]);
    await group.idle();
  });

  it('a busy source does not keep the others waiting, and no commit is larger than allowed', async () => {
    const { group, log, ends, end, endAll, stored } = setUp({ maxRecords: 10, maxBytes: 1000 });
    const busy = new ListSource(1).add(...Array.from({ length: 100 }, (_, i) => `b${i}`));
    const quiet = [2, 3, 4].map((num) => new ListSource(num).add('q'));
    group.offer(busy);
    for (const source of quiet) group.offer(source);
    await end();
    await end();
    expect(quiet.map((source) => source.head)).toEqual([1, 1, 1]);
    await endAll();
    expect(ends).toEqual([]);
    expect(stored(1)).toEqual(Array.from({ length: 100 }, (_, i) => `b${i}`));
    const sizes = log.batches.map((batch) => batch.appends.reduce((sum, { records }) => sum + records.length, 0));
    expect(Math.max(...sizes)).toBe(10);
    expect(log.batches.length).toBeLessThan(14);
  });

  it('splits by bytes, and a record larger than the limit still goes', async () => {
    const { group, log, endAll, stored } = setUp({ maxBytes: 100 });
    const texts = ['x'.repeat(60), 'y'.repeat(60), 'z'.repeat(500), 'w'];
    group.offer(new ListSource(1).add(...texts));
    await endAll();
    expect(stored(1)).toEqual(texts);
    expect(log.batches.map((batch) => batch.appends[0]?.records.length)).toEqual([1, 1, 1, 1]);
  });

  it('serves every one of more sources than fit in a commit', async () => {
    const { group, log, endAll } = setUp({ maxRecords: 4 });
    const sources = Array.from({ length: 11 }, (_, i) => new ListSource(i + 1).add('a', 'b'));
    for (const source of sources) group.offer(source);
    await endAll();
    expect(sources.map((source) => source.head)).toEqual(Array.from({ length: 11 }, () => 2));
    for (const { appends } of log.batches)
      expect(appends.flatMap(({ records }) => records).length).toBeLessThanOrEqual(4);
  });
});

describe('group commit on a full disk', () => {
  it('keeps the records, tells the sources, tries again after a while, and leaves no gap', async () => {
    const { group, log, timers, told, end, endAll, stored } = setUp({ retryMs: 1000 });
    const source = new ListSource(1, told).add('a');
    log.failNext('no_space');
    log.failNext('no_space');
    group.offer(source);
    await end();
    expect(told.splice(0)).toEqual(['settled 1 not_committed 1', 'published 1']);
    expect(timers.map(({ delayMs }) => delayMs)).toEqual([1000]);
    // More comes while it waits: nothing is tried before its time.
    group.offer(source.add('b'));
    expect(log.batches).toHaveLength(1);
    timers.shift()?.task();
    await end();
    expect(log.batches).toHaveLength(2);
    timers.shift()?.task();
    await endAll();
    expect(stored(1)).toEqual(['a', 'b']);
    expect(source.head).toBe(2);
    expect(timers).toEqual([]);
    expect(group.stats).toEqual({ commits: 1, records: 2, bytes: 2, notCommitted: 2 });
  });

  it('does not write what a source has dropped', async () => {
    const { group, log, timers, end, endAll, stored } = setUp();
    const [one, two] = [new ListSource(1).add('a', 'prompt'), new ListSource(2).add('prompt')];
    log.failNext('no_space');
    two.onSettled = () => two.waiting.splice(0);
    one.onSettled = (outcome) => outcome.outcome === 'not_committed' && one.waiting.pop();
    group.offer(one);
    await end();
    group.offer(two);
    two.waiting.splice(0);
    timers.shift()?.task();
    await endAll();
    expect([stored(1), stored(2)]).toEqual([['a'], []]);
    await group.idle();
  });

  it('is idle only when it could write', async () => {
    const { group, log, timers, end, endAll } = setUp();
    log.failNext('no_space');
    group.offer(new ListSource(1).add('a'));
    let idle = false;
    const waiting = group.idle().then(() => (idle = true));
    await end();
    expect(idle).toBe(false);
    timers.shift()?.task();
    await endAll();
    await waiting;
    expect(idle).toBe(true);
  });
});

describe('group commit after an unknown outcome', () => {
  it('[DU4] stops for ever, says so once, and tells everyone who waits or comes later', async () => {
    const { group, log, failed, told, end } = setUp();
    const [one, two] = [new ListSource(1, told).add('a'), new ListSource(2, told).add('x')];
    log.failNext('unknown');
    group.offer(one);
    group.offer(two);
    await end();
    await group.idle();
    expect(told.splice(0)).toEqual(['settled 1 unknown 1', 'settled 2 unknown 0', 'published 1', 'published 2']);
    expect(failed).toEqual(['Input/output error']);
    group.offer(one);
    group.offer(new ListSource(3, told).add('y'));
    expect(told).toEqual(['settled 1 unknown 0', 'published 1', 'settled 3 unknown 0', 'published 3']);
    expect(failed).toHaveLength(1);
    expect(log.batches).toHaveLength(1);
    expect(group.inFlight).toBe(false);
  });

  it('treats a batch that the log refuses as one: something of ours is broken', async () => {
    const { group, log, failed } = setUp();
    const source = new ListSource(1).add('a');
    source.head = 7;
    group.offer(source);
    await group.idle();
    expect(failed).toEqual([expect.stringContaining('session 1 is at 0')]);
    expect(log.batches).toEqual([]);
  });

  it('waits without an end for a commit that does not settle; the log has the time limit', async () => {
    const { group, log, ends, told } = setUp();
    log.failNext('never');
    group.offer(new ListSource(1, told).add('a'));
    group.offer(new ListSource(2, told).add('x'));
    for (let i = 0; i < 10; i++) await Promise.resolve();
    expect([group.inFlight, ends, told, log.batches.length]).toEqual([true, [], [], 1]);
  });
});
