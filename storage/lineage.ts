import type { SessionRow } from './event-log.ts';

/** A range of events that lies under one session number. */
export interface Segment {
  readonly num: number;
  readonly from: number;
  readonly to: number;
}

/**
 * Where the events `from` to `to` of a session lie: a fork reads what is older than itself from its parent, which may
 * be a fork too. In order of seq.
 */
export function segmentsOf(
  rowOf: (num: number) => SessionRow | undefined,
  num: number,
  from: number,
  to: number,
): Segment[] {
  if (from > to) return [];
  const base = rowOf(num)?.base;
  // A parent is always older than its fork, so this ends.
  if (!base || from > base.seq || base.num >= num) return [{ num, from, to }];
  const shared = segmentsOf(rowOf, base.num, from, Math.min(to, base.seq));
  return to > base.seq ? [...shared, { num, from: base.seq + 1, to }] : shared;
}
