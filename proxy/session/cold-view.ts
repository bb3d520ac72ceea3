/**
 * What repair would append to a cold session, for those who only look: nothing is written. A cold log does not change,
 * so the answer is kept by its last event.
 */
import type { RpcError } from '../../protocol/error.ts';
import type { StoredEvent } from '../../storage/event-codec.ts';
import type { EventLog, SessionRow } from '../../storage/event-log.ts';
import { REPAIR_REASON, repairedView } from '../../storage/repair.ts';
import { foldLog } from './open-session.ts';

export type RepairedTail = { readonly events: readonly StoredEvent[] } | { readonly error: RpcError };

const KEPT = 256;

export class ColdViews {
  readonly #log: EventLog;
  readonly #now: () => number;
  readonly #kept = new Map<number, { readonly lastSeq: number; readonly low: number; readonly tail: RepairedTail }>();

  constructor(log: EventLog, now: () => number) {
    this.#log = log;
    this.#now = now;
  }

  /** The events that opening the session would append, numbered behind the log's last one. */
  tail(row: SessionRow): RepairedTail {
    const lastSeq = this.#log.lastSeq(row.num);
    const known = this.#kept.get(row.num);
    if (known && known.lastSeq === lastSeq && known.low === row.low) return known.tail;
    const folded = foldLog(this.#log, row);
    const tail =
      'error' in folded ? folded : { events: repairedView(folded.state, folded.head, REPAIR_REASON, this.#now()) };
    this.#kept.delete(row.num);
    this.#kept.set(row.num, { lastSeq, low: row.low, tail });
    for (const num of this.#kept.keys()) {
      if (this.#kept.size <= KEPT) break;
      this.#kept.delete(num);
    }
    return tail;
  }
}
