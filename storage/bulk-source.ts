/**
 * Work that passes group commit beside the sessions that are open: an import, a deletion, pruning. A piece at a time, so
 * that everybody else's commits stay quick.
 */
import type { CommitOutcome, SessionRemoval, SessionRow } from './event-log.ts';
import type { AppendSource, GroupCommit } from './group-commit.ts';

/** What one `run` writes. The row goes with the last of the records, removals and what is forgotten with the first. */
export interface BulkPiece {
  readonly records?: readonly Buffer[];
  readonly row?: SessionRow;
  readonly removals?: readonly SessionRemoval[];
  /** Deleted sessions whose rows go, by sessionId. */
  readonly forgets?: readonly string[];
}

const COMMITTED: CommitOutcome = { outcome: 'committed' };

export class BulkSource implements AppendSource {
  readonly num: number;
  head: number;
  readonly #commit: GroupCommit;
  #records: readonly Buffer[] = [];
  #row: SessionRow | undefined;
  #removals: readonly SessionRemoval[] = [];
  #forgets: readonly string[] = [];
  #peeked = 0;
  #done: ((outcome: CommitOutcome) => void) | undefined;

  /** @param head last seq of the session that the records follow */
  constructor(commit: GroupCommit, num: number, head: number) {
    this.#commit = commit;
    this.num = num;
    this.head = head;
  }

  /** Resolves when all of it is committed, or the first part of it is not: the rest is then given up. One at a time. */
  run({ records = [], row, removals = [], forgets = [] }: BulkPiece): Promise<CommitOutcome> {
    if (this.#done) throw new Error('a piece is under way');
    const nothing = records.length === 0 && !row && removals.length === 0 && forgets.length === 0;
    if (nothing) return Promise.resolve(COMMITTED);
    this.#records = records;
    this.#row = row;
    this.#removals = removals;
    this.#forgets = forgets;
    return new Promise((resolve) => {
      this.#done = resolve;
      this.#commit.offer(this);
    });
  }

  peek(maxRecords: number, maxBytes: number): readonly Buffer[] {
    let bytes = 0;
    let count = 0;
    for (const record of this.#records) {
      bytes += record.length;
      if (count > 0 && (count >= maxRecords || bytes > maxBytes)) break;
      count++;
    }
    this.#peeked = count;
    return this.#records.slice(0, count);
  }

  peekRow(): SessionRow | undefined {
    return this.#peeked === this.#records.length ? this.#row : undefined;
  }

  peekRemovals(): readonly SessionRemoval[] {
    return this.#removals;
  }

  peekForgets(): readonly string[] {
    return this.#forgets;
  }

  settled(outcome: CommitOutcome, count: number, row: SessionRow | undefined): void {
    if (!this.#done) return;
    if (outcome.outcome !== 'committed') {
      this.#finish(outcome);
      return;
    }
    this.head += count;
    this.#records = this.#records.slice(count);
    this.#removals = [];
    this.#forgets = [];
    if (row === this.#row) this.#row = undefined;
    if (this.#records.length === 0 && this.#row === undefined) this.#finish(outcome);
  }

  published(): void {
    // Whoever waits for `run` is told by then.
  }

  #finish(outcome: CommitOutcome): void {
    const done = this.#done;
    this.#done = undefined;
    this.#records = [];
    this.#row = undefined;
    this.#removals = [];
    this.#forgets = [];
    done?.(outcome);
  }
}
