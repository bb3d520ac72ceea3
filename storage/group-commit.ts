/**
 * Group commit: one commit in flight, and what comes meanwhile forms the next. No timer and no waiting for more, so an
 * idle log commits at once and a busy one in large groups.
 *
 *            offer                       commit settles
 *   idle ------------> in flight ------------------------------> idle | in flight (something is waiting)
 *                          |                                 ^
 *                          +--- not_committed ---> waiting --+ (retryMs)
 *                          +--- unknown ---------> stopped
 *
 * When a commit settles: first every source hears it (`settled`: heads move), then the next commit is started, and only
 * then do the sources tell the world (`published`), while the disk already works on the next.
 */
import type { CommitBatch, CommitOutcome, EventLog, SessionRemoval, SessionRow } from './event-log.ts';

/** A session's side of group commit. */
export interface AppendSource {
  readonly num: number;
  /** Last durable seq. */
  readonly head: number;
  /** The records at the front of the order that may be written now, not removed. At most about `maxBytes`, at least one. */
  peek(maxRecords: number, maxBytes: number): readonly Buffer[];
  /** The row to write with them, when it changed. */
  peekRow(): SessionRow | undefined;
  /** Events to remove in the same commit; a few hundred at most. What was taken is settled like the row. */
  peekRemovals?(): readonly SessionRemoval[];
  /** Deleted sessions to forget in the same commit. */
  peekForgets?(): readonly string[];
  /**
   * How the commit of the first `count` peeked records and of `row` ended. Must be cheap, the next commit waits for it:
   * advance the head, drop what may be dropped on a full disk. Offers made here are taken into the next commit.
   */
  settled(outcome: CommitOutcome, count: number, row: SessionRow | undefined): void;
  /** Follows `settled`, after the next commit has been started. */
  published(): void;
}

export interface GroupCommitOptions {
  /** The log must not be used any more. Called once. */
  readonly onFailed: (message: string) => void;
  readonly maxRecords?: number;
  readonly maxBytes?: number;
  /** After a commit for which there was no room. */
  readonly retryMs?: number;
  /** Runs a task after a while; `setTimeout` when not given. */
  readonly after?: (delayMs: number, task: () => void) => void;
}

export interface GroupCommitStats {
  readonly commits: number;
  readonly records: number;
  readonly bytes: number;
  readonly notCommitted: number;
}

interface Part {
  readonly source: AppendSource;
  readonly count: number;
  readonly row: SessionRow | undefined;
}

interface Taken {
  readonly batch: CommitBatch;
  readonly parts: readonly Part[];
  readonly bytes: number;
}

type State = 'idle' | 'in_flight' | 'settling' | 'waiting' | 'stopped';

export class GroupCommit {
  readonly #log: Pick<EventLog, 'commit'>;
  readonly #onFailed: (message: string) => void;
  readonly #maxRecords: number;
  readonly #maxBytes: number;
  readonly #retryMs: number;
  readonly #after: (delayMs: number, task: () => void) => void;
  /** Sources that may have something, the one that waits longest first. */
  readonly #dirty = new Set<AppendSource>();
  #state: State = 'idle';
  #failure: CommitOutcome | undefined;
  #idleWaiters: (() => void)[] = [];
  #stats = { commits: 0, records: 0, bytes: 0, notCommitted: 0 };

  constructor(log: Pick<EventLog, 'commit'>, options: GroupCommitOptions) {
    this.#log = log;
    this.#onFailed = options.onFailed;
    this.#maxRecords = options.maxRecords ?? 512;
    this.#maxBytes = options.maxBytes ?? 4 * 1024 * 1024;
    this.#retryMs = options.retryMs ?? 1000;
    this.#after = options.after ?? ((delayMs, task) => void setTimeout(task, delayMs));
  }

  get inFlight(): boolean {
    return this.#state === 'in_flight';
  }

  get stats(): GroupCommitStats {
    return { ...this.#stats };
  }

  /** The source has something to write, or may have. Begins the commit before it returns when none is in flight. */
  offer(source: AppendSource): void {
    if (this.#failure) {
      source.settled(this.#failure, 0, undefined);
      source.published();
      return;
    }
    this.#dirty.add(source);
    if (this.#state === 'idle') this.#begin();
  }

  /** Resolves when nothing is in flight and nothing waits, or the log has failed. */
  idle(): Promise<void> {
    if (this.#state === 'stopped' || (this.#state === 'idle' && this.#dirty.size === 0)) return Promise.resolve();
    return new Promise((resolve) => this.#idleWaiters.push(resolve));
  }

  /** Starts the next commit, when there is something for one. */
  #begin(): void {
    const taken = this.#take();
    if (!taken) {
      this.#state = 'idle';
      return;
    }
    this.#state = 'in_flight';
    let committing: Promise<CommitOutcome>;
    try {
      committing = this.#log.commit(taken.batch);
    } catch (error) {
      // A broken contract is a bug of ours; a log that goes on after it would be wrong in silence.
      committing = Promise.resolve({ outcome: 'unknown', message: String(error) });
    }
    void committing.then((outcome) => this.#settle(taken, outcome));
  }

  /** Takes a fair share from each source; who got less than it had stays for the next commit, behind the others. */
  #take(): Taken | undefined {
    const parts: Part[] = [];
    const appends: { num: number; firstSeq: number; records: readonly Buffer[] }[] = [];
    const rows: SessionRow[] = [];
    const removals: SessionRemoval[] = [];
    const forgets: string[] = [];
    let records = this.#maxRecords;
    let bytes = this.#maxBytes;
    let left = this.#dirty.size;
    for (const source of this.#dirty) {
      if (records <= 0 || bytes <= 0) break;
      this.#dirty.delete(source);
      const peeked = source.peek(Math.max(1, Math.floor(records / left)), Math.max(1, Math.floor(bytes / left)));
      const row = source.peekRow();
      const gone = source.peekRemovals?.() ?? [];
      const forgotten = source.peekForgets?.() ?? [];
      left--;
      if (peeked.length === 0 && !row && gone.length === 0 && forgotten.length === 0) continue;
      for (const record of peeked) bytes -= record.length;
      records -= Math.max(1, peeked.length);
      if (peeked.length > 0) appends.push({ num: source.num, firstSeq: source.head + 1, records: peeked });
      if (row) rows.push(row);
      removals.push(...gone);
      forgets.push(...forgotten);
      parts.push({ source, count: peeked.length, row });
    }
    const batch = { appends, rows, ...(removals.length > 0 && { removals }), ...(forgets.length > 0 && { forgets }) };
    return parts.length > 0 ? { batch, parts, bytes: this.#maxBytes - bytes } : undefined;
  }

  #settle(taken: Taken, outcome: CommitOutcome): void {
    this.#state = 'settling';
    let heard = taken.parts;
    if (outcome.outcome === 'unknown') {
      this.#failure = outcome;
      const parts = new Set(taken.parts.map((part) => part.source));
      const waiting = [...this.#dirty].filter((source) => !parts.has(source));
      heard = [...taken.parts, ...waiting.map((source) => ({ source, count: 0, row: undefined }))];
      this.#dirty.clear();
    }
    this.#count(taken, outcome);
    for (const { source, count, row } of heard) {
      source.settled(outcome, count, row);
      if (!this.#failure) this.#dirty.add(source);
    }
    switch (outcome.outcome) {
      case 'committed':
        this.#begin();
        break;
      case 'not_committed':
        this.#state = 'waiting';
        this.#after(this.#retryMs, () => {
          this.#begin();
          this.#wakeIdle();
        });
        break;
      case 'unknown':
        this.#state = 'stopped';
        break;
    }
    for (const { source } of heard) source.published();
    this.#wakeIdle();
    if (outcome.outcome === 'unknown') this.#onFailed(outcome.message);
  }

  #count(taken: Taken, outcome: CommitOutcome): void {
    if (outcome.outcome === 'not_committed') this.#stats.notCommitted++;
    if (outcome.outcome !== 'committed') return;
    this.#stats.commits++;
    this.#stats.bytes += taken.bytes;
    for (const { count } of taken.parts) this.#stats.records += count;
  }

  #wakeIdle(): void {
    if (this.#state !== 'idle' && this.#state !== 'stopped') return;
    for (const wake of this.#idleWaiters.splice(0)) wake();
  }
}
