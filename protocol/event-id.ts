/**
 * Event ids: the cursors that clients hand back. Opaque to them; to us a position in one log.
 *
 *   <logId>-<seq>                    after the event `seq`
 *   <logId>-<seq>~<boot>-<offset>    inside the text of event `seq`, after `offset` bytes of its stored text
 *   <logId>-<seq>.<block>            inside the prompt of event `seq`, after its block `block` (counted from 1)
 *
 * A position is written `(seq, offset)`: everything up to and including event `seq` has been seen, and of event
 * `seq + 1` the first `offset` bytes (text) or blocks (prompt). So `(7, 0)` is "after event 7".
 */
export interface Position {
  readonly seq: number;
  readonly offset: number;
}

export type EventId =
  | { readonly form: 'settled'; readonly logId: string; readonly seq: number }
  | {
      readonly form: 'chunk';
      readonly logId: string;
      readonly seq: number;
      readonly boot: string;
      readonly offset: number;
    }
  | { readonly form: 'block'; readonly logId: string; readonly seq: number; readonly block: number };

const FORM = /^([a-z0-9]{1,32})-(0|[1-9]\d{0,14})(?:~([a-z0-9]{1,32})-([1-9]\d{0,14})|\.([1-9]\d{0,8}))?$/;

/** Reads an event id; undefined when it has none of the three forms. */
export function parseEventId(text: unknown): EventId | undefined {
  const found = typeof text === 'string' ? FORM.exec(text) : null;
  if (!found) return undefined;
  const [, logId = '', seqText = '', boot, offset, block] = found;
  const seq = Number(seqText);
  if (boot !== undefined) return seq === 0 ? undefined : { form: 'chunk', logId, seq, boot, offset: Number(offset) };
  if (block !== undefined) return seq === 0 ? undefined : { form: 'block', logId, seq, block: Number(block) };
  return { form: 'settled', logId, seq };
}

/** What an id stands for, in the terms of `Position`. Positions of two ids compare only within one log. */
export function positionOf(id: EventId): Position {
  switch (id.form) {
    case 'settled':
      return { seq: id.seq, offset: 0 };
    case 'chunk':
      return { seq: id.seq - 1, offset: id.offset };
    case 'block':
      return { seq: id.seq - 1, offset: id.block };
  }
}

export function settledId(logId: string, seq: number): string {
  return `${logId}-${seq}`;
}

export function chunkId(logId: string, seq: number, boot: string, offset: number): string {
  return `${logId}-${seq}~${boot}-${offset}`;
}

export function blockId(logId: string, seq: number, block: number): string {
  return `${logId}-${seq}.${block}`;
}

export function comparePositions(a: Position, b: Position): number {
  return a.seq - b.seq || a.offset - b.offset;
}
