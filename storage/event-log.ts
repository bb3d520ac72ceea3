/**
 * The event log: what outlives everything else. This file is its contract; `test/contract/event-log.contract.ts` is
 * the same contract as tests, run on every store.
 *
 * - A session has a public id, a number (its key on disk) and a log id (in its event ids). Its events are numbered from
 *   1 without a gap.
 * - `commit` is atomic over all sessions in it, and when it says `committed` the records survive a power loss. One
 *   commit is in flight at a time; `GroupCommit` sees to that.
 * - A record is never changed, only removed when it is pruned or its session is deleted. What a read returns has been committed: visible implies durable.
 * - Buffers given to `commit` belong to the log until it has settled and must not change meanwhile.
 * - The log knows no client and pushes to nobody.
 */

/** What the index holds of a session. Written in the same commit as the events that change it. */
export interface SessionRow {
  /** Public session id, any string of 1 to 512 characters without control characters. */
  readonly sessionId: string;
  /** Key on disk; never used twice. */
  readonly num: number;
  /** `[a-z0-9]`, new for every log, also for a fork or an import. */
  readonly logId: string;
  readonly cwd: string;
  readonly additionalDirectories?: readonly string[];
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly title?: string | null;
  /** Agent session ids that were ever bound to this session; they are never listed or imported on their own. */
  readonly bound: readonly string[];
  /** Agent session ids that this session has announced as its children: the latest of them. */
  readonly children?: readonly string[];
  /** First seq that is still there, 1 unless pruned. */
  readonly low: number;
  readonly closed?: boolean;
  /** Parent of a fork: events up to and including `seq` are read from it. */
  readonly base?: { readonly num: number; readonly seq: number };
  /** Deleted; kept so that the agent's copy is not imported again, until it is one of the many that are forgotten. */
  readonly tombstone?: boolean;
  /** Of a tombstone: the agent has not answered that it knows of the deletion; how many of its lives were told. */
  readonly untold?: number;
}

/** The records that one session adds, contiguous from `firstSeq`. */
export interface SessionAppend {
  readonly num: number;
  readonly firstSeq: number;
  readonly records: readonly Buffer[];
}

/**
 * Events that go: `from` to `to`, inclusive, of one session number. Those that are not there are stepped over. `pruned` is
 * the record that then stands at `to`.
 */
export interface SessionRemoval {
  readonly num: number;
  readonly from: number;
  readonly to: number;
  readonly pruned?: Buffer;
}

export interface CommitBatch {
  readonly appends: readonly SessionAppend[];
  /** Rows to write or overwrite, by sessionId. */
  readonly rows: readonly SessionRow[];
  /** Pruned or deleted events. The last event of a session that goes on is never among them. */
  readonly removals?: readonly SessionRemoval[];
  /**
   * Deleted sessions, by sessionId, whose rows go; that their ids were theirs stays known. They have no events, and no
   * row has them as its base. A row of the same commit stays.
   */
  readonly forgets?: readonly string[];
}

/**
 * - `committed`: durable.
 * - `not_committed`: nothing of the batch is in the log, the log works on; safe to try again. Only for a full disk.
 * - `unknown`: this process must not write or read the store again; the next start reads what is there.
 */
export type CommitOutcome =
  | { readonly outcome: 'committed' }
  | { readonly outcome: 'not_committed'; readonly cause: 'no_space'; readonly message: string }
  | { readonly outcome: 'unknown'; readonly message: string };

/**
 * Called for each record, in order. `record` is valid only during the call, must not be changed and may be longer than
 * `length`. The visitor must not read the log. Return false to stop.
 */
export type RecordVisitor = (seq: number, record: Buffer, length: number) => boolean;

/** How a scan ended: the visitor stopped it or the range was done (`end`), or `seq` was not there although it must be. */
export type ScanOutcome = { readonly outcome: 'end' } | { readonly outcome: 'gap'; readonly seq: number };

export interface EventLog {
  /** Made new with the store. */
  readonly storeId: string;
  /** Every row, in no particular order, tombstones too. Held in memory by the store. */
  rows(): IterableIterator<SessionRow>;
  row(sessionId: string): SessionRow | undefined;
  /** Whether a deleted session that was forgotten had this id, or was bound to it. There may be a new session of this id. */
  isForgotten(id: string): boolean;
  /** A number for a new session, above all that the store has seen. Not durable by itself. */
  nextNum(): number;
  /** Numbers from here on were given out since the log was opened; all below it are of an earlier life. */
  readonly firstOwnNum: number;
  /** Last committed seq of a session, 0 when it has none. A fork begins with its base's. */
  lastSeq(num: number): number;
  /** The session numbers that events are stored under, ascending. */
  storedNums(): number[];
  /** The first event from `from` on that is stored under this number itself, not its parent's; undefined: none. */
  firstStored(num: number, from: number): number | undefined;
  /**
   * Visits the records `from` to `to` (inclusive, at most to the last one), synchronously. A fork's early events come
   * from its parent.
   */
  scan(num: number, from: number, to: number, visit: RecordVisitor): ScanOutcome;
  /** Brings the pages of a range into memory off the main thread, so that a scan of them does not block it. */
  prefetch(num: number, from: number, to: number): Promise<void>;
  /**
   * One at a time. Never rejects; throws, and has written nothing, when a batch breaks the contract: another commit in
   * flight, records that do not follow the last one, an impossible session id, a session to forget that is not deleted.
   */
  commit(batch: CommitBatch): Promise<CommitOutcome>;
  /** Bytes of the store's files, for metrics. */
  bytes(): number;
  /**
   * The disk was full and its reserve is used: what runs may be recorded to its end, nothing new may begin. Ends by
   * itself when there is room again.
   */
  readonly lowOnSpace: boolean;
  close(): Promise<void>;
}
