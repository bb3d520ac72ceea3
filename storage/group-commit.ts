import type { CommitOutcome, SessionRow } from './event-log.ts';
/** A session's side of group commit. */
export interface AppendSource {
  readonly num: number;
  /** Last durable seq. */
  readonly head: number;
  /** The records at the front of the order that may be written now, not removed. At most about `maxBytes`, at least one. */
  peek(maxRecords: number, maxBytes: number): readonly Buffer[];
  /** The row to write with them, when it changed. */
  peekRow(): SessionRow | undefined;
  /** How the commit of the first `count` peeked records ended. */
  settled(outcome: CommitOutcome, count: number): void;
}
