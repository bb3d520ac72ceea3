/**
 * The event log in memory: the same contract with nothing behind it, and with faults on demand. It reads the records it
 * was given only when the commit settles, as LMDB does, so that a buffer that is changed too early shows.
 */
import type { CommitBatch, CommitOutcome, EventLog, RecordVisitor, ScanOutcome, SessionRow } from './event-log.ts';
import { ForgottenIds, idsOf, tombstonesOf } from './forgotten-ids.ts';
import { segmentsOf } from './lineage.ts';
import { sessionKey } from './log-keys.ts';

/** How the next commit ends instead of being committed. `never`: it does not settle. */
export type CommitFault = 'no_space' | 'unknown' | 'never';

export interface MemoryEventLogOptions {
  readonly storeId?: string;
  /** Runs the end of a commit later; `setImmediate` when not given. */
  readonly later?: (task: () => void) => void;
}

export class MemoryEventLog implements EventLog {
  readonly storeId: string;
  lowOnSpace = false;
  /** Every commit that was begun, for tests. */
  readonly batches: CommitBatch[] = [];
  readonly #later: (task: () => void) => void;
  readonly #rows = new Map<string, SessionRow>();
  readonly #byNum = new Map<number, SessionRow>();
  readonly #events = new Map<number, Map<number, Buffer>>();
  readonly #heads = new Map<number, number>();
  readonly #faults: CommitFault[] = [];
  #forgotten = ForgottenIds.NONE;
  #next = 1;
  readonly firstOwnNum = 1;
  #bytes = 0;
  #inFlight = false;
  #failed: CommitOutcome | undefined;

  constructor(options: MemoryEventLogOptions = {}) {
    this.storeId = options.storeId ?? 'memory';
    this.#later = options.later ?? ((task) => void setImmediate(task));
  }

  /** The next commit that has no fault yet ends so. */
  failNext(fault: CommitFault): void {
    this.#faults.push(fault);
  }

  rows(): IterableIterator<SessionRow> {
    return this.#rows.values();
  }

  row(sessionId: string): SessionRow | undefined {
    return this.#rows.get(sessionId);
  }

  isForgotten(id: string): boolean {
    return this.#forgotten.has(id);
  }

  nextNum(): number {
    return this.#next++;
  }

  lastSeq(num: number): number {
    return Math.max(this.#heads.get(num) ?? 0, this.#byNum.get(num)?.base?.seq ?? 0);
  }

  scan(num: number, from: number, to: number, visit: RecordVisitor): ScanOutcome {
    const last = Math.min(to, this.lastSeq(num));
    for (const segment of segmentsOf((of) => this.#byNum.get(of), num, from, last)) {
      const events = this.#events.get(segment.num);
      for (let seq = segment.from; seq <= segment.to; seq++) {
        const record = events?.get(seq);
        if (!record) return { outcome: 'gap', seq };
        if (!visit(seq, record, record.length)) return { outcome: 'end' };
      }
    }
    return { outcome: 'end' };
  }

  storedNums(): number[] {
    return [...this.#events].flatMap(([num, events]) => (events.size > 0 ? [num] : [])).toSorted((a, b) => a - b);
  }

  firstStored(num: number, from: number): number | undefined {
    const seqs = [...(this.#events.get(num)?.keys() ?? [])].filter((seq) => seq >= from);
    return seqs.length > 0 ? Math.min(...seqs) : undefined;
  }

  /** Takes an event away, as damage would. */
  remove(num: number, seq: number): void {
    this.#events.get(num)?.delete(seq);
  }

  prefetch(): Promise<void> {
    return Promise.resolve();
  }

  commit(batch: CommitBatch): Promise<CommitOutcome> {
    if (this.#failed) return Promise.resolve(this.#failed);
    if (this.#inFlight) throw new Error('another commit is in flight');
    for (const row of batch.rows) sessionKey(row.sessionId);
    const seen = new Set<number>();
    for (const { num, firstSeq } of batch.appends) {
      if (seen.has(num)) throw new Error(`session ${num} is twice in a batch`);
      seen.add(num);
      const base = batch.rows.find((row) => row.num === num)?.base?.seq ?? 0;
      const head = Math.max(this.lastSeq(num), base);
      if (firstSeq !== head + 1) throw new Error(`session ${num} is at ${head}, a record came for ${firstSeq}`);
    }
    tombstonesOf((id) => this.#rows.get(id), batch.forgets);
    this.#inFlight = true;
    this.batches.push(batch);
    const fault = this.#faults.shift();
    return new Promise((resolve) => {
      if (fault === 'never') return;
      this.#later(() => {
        this.#inFlight = false;
        resolve(this.#settle(batch, fault));
      });
    });
  }

  bytes(): number {
    return this.#bytes;
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  #settle(batch: CommitBatch, fault: 'no_space' | 'unknown' | undefined): CommitOutcome {
    if (fault === 'no_space')
      return { outcome: 'not_committed', cause: 'no_space', message: 'No space left on device' };
    if (fault === 'unknown') {
      this.#failed = { outcome: 'unknown', message: 'Input/output error' };
      return this.#failed;
    }
    for (const { num, firstSeq, records } of batch.appends) {
      const events = this.#events.get(num) ?? new Map<number, Buffer>();
      this.#events.set(num, events);
      records.forEach((record, i) => events.set(firstSeq + i, Buffer.from(record)));
      for (const record of records) this.#bytes += record.length;
      this.#heads.set(num, firstSeq + records.length - 1);
    }
    for (const { num, from, to, pruned } of batch.removals ?? []) {
      for (let seq = from; seq <= to; seq++) this.#events.get(num)?.delete(seq);
      if (pruned) this.#events.get(num)?.set(to, Buffer.from(pruned));
    }
    for (const row of tombstonesOf((id) => this.#rows.get(id), batch.forgets)) {
      this.#forgotten = this.#forgotten.with(idsOf(row));
      this.#rows.delete(row.sessionId);
      this.#byNum.delete(row.num);
      this.#heads.delete(row.num);
    }
    for (const row of batch.rows) {
      this.#rows.set(row.sessionId, row);
      this.#byNum.set(row.num, row);
      this.#next = Math.max(this.#next, row.num + 1);
    }
    return { outcome: 'committed' };
  }
}
