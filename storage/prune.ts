/** Carrying out what a retention policy asks for, in a store that nobody else has open. */
import { encodeRecord } from './event-codec.ts';
import type { EventLog, SessionRow } from './event-log.ts';
import { segmentsOf } from './lineage.ts';
import { type Cut, type RetainPolicy, type SessionSize, visitRecords } from './retention-plan.ts';

/** `--retain` and `--retain-events`. */
export interface Retention {
  readonly sessions: RetainPolicy;
  readonly events: RetainPolicy;
}

export function limitsNothing({ ageMs, count, bytes }: RetainPolicy): boolean {
  return ageMs === undefined && count === undefined && bytes === undefined;
}

/** Bytes of the records of sessions; kept, for a log only grows at its end. */
export class SessionSizes {
  readonly #log: EventLog;
  readonly #kept = new Map<number, { low: number; to: number; bytes: number }>();

  constructor(log: EventLog) {
    this.#log = log;
  }

  async of(row: SessionRow): Promise<number> {
    const known = this.#kept.get(row.num);
    const size = known?.low === row.low ? known : { low: row.low, to: row.low - 1, bytes: 0 };
    const last = this.#log.lastSeq(row.num);
    await visitRecords(this.#log, { ...row, low: size.to + 1 }, last, (seq, _record, length) => {
      size.to = seq;
      size.bytes += length;
      return true;
    });
    this.#kept.set(row.num, size);
    return size.bytes;
  }
}

/** @param idle nothing runs or waits in the session and nobody is on it */
export async function sizesOf(
  log: EventLog,
  sizes: SessionSizes,
  policy: RetainPolicy,
  idle: (row: SessionRow) => boolean,
): Promise<SessionSize[]> {
  const sessions: SessionSize[] = [];
  for (const row of log.rows()) {
    if (row.tombstone) continue;
    const bytes = policy.bytes === undefined ? 0 : await sizes.of(row);
    sessions.push({ row, bytes, idle: idle(row) });
  }
  return sessions;
}

/** The last event of a session that others read: a fork's parent is not cut before it, a fork not inside it. */
export function sharedUpTo(log: EventLog, row: SessionRow): number {
  const byNum = new Map<number, SessionRow>();
  for (const other of log.rows()) byNum.set(other.num, other);
  let shared = row.base?.seq ?? 0;
  for (const other of byNum.values()) {
    if (other.num === row.num || other.tombstone || !other.base) continue;
    for (const segment of segmentsOf((num) => byNum.get(num), other.num, other.low, log.lastSeq(other.num))) {
      if (segment.num === row.num) shared = Math.max(shared, segment.to);
    }
  }
  return shared;
}

/** The record that takes the place of the event at `cut.low`. */
export function prunedRecord(cut: Cut, now: number): Buffer {
  const event = { type: 'pruned', required: true, synthetic: true, time: now, payload: cut.payload } as const;
  return encodeRecord(event, { boot: '' });
}
