/**
 * Replays of child sessions on one attachment. A child's updates lie in its parent's log, so the attachment goes through
 * that log once more, and steps over everything else:
 *
 *   from ---- only the child's updates ---- until ---- everything, as before ---->
 *
 * `until` is where the attachment stood: its view of the parent goes on there, and nothing of it is shown twice.
 */
import { type Position, comparePositions } from '../../protocol/event-id.ts';

/** What a message is: part of a full or tail replay, or not shown. Undefined: the replays have nothing to do with it. */
export type Judged = 'full' | 'tail' | { readonly goOnAt: Position } | undefined;

export class ChildReplay {
  readonly #until: Position;
  /** By the child's id, wire text. */
  readonly #children = new Map<string, { from: Position; readonly full: boolean }>();

  constructor(until: Position) {
    this.#until = until;
  }

  /** @param at where the attachment stands: other replays have been shown up to there, and not again */
  add(child: string, from: Position, full: boolean, at: Position): void {
    for (const entry of this.#children.values()) if (comparePositions(entry.from, at) < 0) entry.from = at;
    this.#children.set(child, { from, full });
  }

  /** Nothing is stepped over from here on. */
  isOver(at: Position): boolean {
    const ends = [this.#until, ...[...this.#children.values()].map(({ from }) => from)];
    return ends.every((end) => comparePositions(end, at) <= 0);
  }

  /** @param child of the message that is next behind `at`: the id in its envelope, wire text */
  judge(at: Position, child: string | undefined): Judged {
    const replayed = child === undefined ? undefined : this.#children.get(child);
    const from = replayed?.from ?? this.#until;
    if (comparePositions(at, from) < 0) return { goOnAt: from };
    if (!replayed || comparePositions(at, this.#until) >= 0) return undefined;
    return replayed.full ? 'full' : 'tail';
  }
}
