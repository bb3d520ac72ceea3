/**
 * What goes: the events of deleted sessions, those that were pruned, and in the end the rows of deleted sessions. Events
 * that a fork still reads stay, also when the session that they were written for is gone.
 */
import type { BulkSource } from './bulk-source.ts';
import type { CommitOutcome, EventLog, SessionRemoval, SessionRow } from './event-log.ts';
import { type Segment, segmentsOf } from './lineage.ts';

/** Rows of deleted sessions that are kept. Of older sessions hashes of their ids are enough. */
const KEPT_TOMBSTONES = 4096;
const FORGOTTEN_AT_ONCE = KEPT_TOMBSTONES / 2;
/** With more than this also those go of which the agent was not told. */
const KEPT_UNTOLD = 4 * KEPT_TOMBSTONES;

/** Keys removed in one commit: everybody else's commits wait for it. */
const CHUNK_EVENTS = 256;

/** What living sessions read, by the session number that it lies under. */
export function neededSegments(log: EventLog): Map<number, Segment[]> {
  const byNum = new Map<number, SessionRow>();
  for (const row of log.rows()) byNum.set(row.num, row);
  const needed = new Map<number, Segment[]>();
  for (const row of byNum.values()) {
    if (row.tombstone) continue;
    for (const segment of segmentsOf((num) => byNum.get(num), row.num, row.low, log.lastSeq(row.num))) {
      const list = needed.get(segment.num);
      if (list) list.push(segment);
      else needed.set(segment.num, [segment]);
    }
  }
  return needed;
}

/** The events of a session's own that nobody reads any more, lowest first. */
export function unneeded(
  log: EventLog,
  row: SessionRow,
  needed: ReadonlyMap<number, readonly Segment[]>,
): SessionRemoval[] {
  const last = row.tombstone ? log.lastSeq(row.num) : row.low - 1;
  const removals: SessionRemoval[] = [];
  let from = (row.base?.seq ?? 0) + 1;
  const kept = (needed.get(row.num) ?? []).toSorted((a, b) => a.from - b.from);
  for (const segment of [...kept, { num: row.num, from: last + 1, to: last + 1 }]) {
    const to = Math.min(last, segment.from - 1);
    const first = from <= to ? log.firstStored(row.num, from) : undefined;
    if (first !== undefined && first <= to) removals.push({ num: row.num, from: first, to });
    from = Math.max(from, segment.to + 1);
  }
  return removals;
}

/**
 * Session numbers that have events and no row: a session whose making was cut off by the end of an earlier process. One
 * that is being made now has events before its row is known, too; its number is of this process.
 */
export function orphans(log: EventLog): number[] {
  const known = new Set<number>();
  for (const row of log.rows()) known.add(row.num);
  return log.storedNums().filter((num) => num < log.firstOwnNum && !known.has(num));
}

/**
 * The deleted sessions whose rows go next, in one commit: none while there are not too many, else the oldest.
 * @param open numbers of sessions that are open
 */
export function forgettable(log: EventLog, open: ReadonlySet<number>): string[] {
  const tombstones: SessionRow[] = [];
  const bases = new Set<number>();
  for (const row of log.rows()) {
    if (row.base) bases.add(row.base.num);
    if (row.tombstone) tombstones.push(row);
  }
  if (tombstones.length <= KEPT_TOMBSTONES) return [];
  /** Another row reads through it, it is being deleted right now, or not all that follows from that was done. */
  const isNeeded = (row: SessionRow): boolean =>
    bases.has(row.num) ||
    open.has(row.num) ||
    (row.untold !== undefined && tombstones.length <= KEPT_UNTOLD) ||
    log.firstStored(row.num, 1) !== undefined;
  const oldest: string[] = [];
  for (const row of tombstones.sort((a, b) => a.updatedAt - b.updatedAt || a.num - b.num)) {
    if (oldest.length === FORGOTTEN_AT_ONCE) break;
    if (!isNeeded(row)) oldest.push(row.sessionId);
  }
  return oldest;
}

/** Removes events in small commits; ends at the first that fails. Taken up again where it was left. */
export async function removeEvents(bulk: BulkSource, removals: readonly SessionRemoval[]): Promise<CommitOutcome> {
  for (const { num, from, to } of removals) {
    for (let at = from; at <= to; at += CHUNK_EVENTS) {
      const outcome = await bulk.run({ removals: [{ num, from: at, to: Math.min(to, at + CHUNK_EVENTS - 1) }] });
      if (outcome.outcome !== 'committed') return outcome;
    }
  }
  return { outcome: 'committed' };
}
