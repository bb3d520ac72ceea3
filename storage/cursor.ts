/**
 * Cursors: what a client hands back, and the position it stands for. Every way a cursor can be wrong has a reason that
 * the client is told.
 *
 * | reason      | the cursor                                                             |
 * |-------------|------------------------------------------------------------------------|
 * | `no_cursor` | is not there                                                           |
 * | `malformed` | is no event id, or points into the middle of a character or an escape  |
 * | `foreign`   | is of another log                                                      |
 * | `ahead`     | is of something that this log has not reached                          |
 * | `diverged`  | is inside a text that the log does not have: a crash lost the run      |
 * | `expired`   | is of something that has been pruned                                   |
 */
import './latin1.ts';
import { parseEventId, type EventId, type Position } from '../protocol/event-id.ts';
import { items, memberAt } from '../protocol/wire-text.ts';
import { EVENT_TYPES } from '../protocol/event.ts';
import { bootOf, payloadEnd, payloadStart, textSpan, typeCode } from './event-codec.ts';
import type { EventLog, SessionRow } from './event-log.ts';

export type CursorReason = 'no_cursor' | 'malformed' | 'foreign' | 'ahead' | 'diverged' | 'expired';
export type ResolvedCursor = { readonly ok: Position } | { readonly reason: CursorReason };

export interface CursorQuestion {
  readonly log: EventLog;
  readonly row: SessionRow;
  /** Boot id of this process, the one of the open run. */
  readonly boot: string;
  /** What the client sent. */
  readonly cursor: unknown;
  /** The text at `lastSeq + 1` that is not an event yet, `length` bytes of it so far. */
  readonly openRun?: { readonly seq: number; readonly length: number } | undefined;
}

type Chunk = Extract<EventId, { form: 'chunk' }>;
type Block = Extract<EventId, { form: 'block' }>;

/**
 * The position after the cursor. For one inside the open run the caller checks `isTextBoundary` on the run's bytes, and
 * takes a failure for `malformed`.
 */
export function resolveCursor(question: CursorQuestion): ResolvedCursor {
  const { log, row, cursor } = question;
  if (cursor === undefined || cursor === null) return { reason: 'no_cursor' };
  const id = parseEventId(cursor);
  if (!id) return { reason: 'malformed' };
  if (id.logId !== row.logId) return { reason: 'foreign' };
  const lastSeq = log.lastSeq(row.num);
  switch (id.form) {
    case 'settled':
      if (id.seq > lastSeq) return { reason: 'ahead' };
      // What comes next must still be there.
      return id.seq + 1 < row.low ? { reason: 'expired' } : { ok: { seq: id.seq, offset: 0 } };
    case 'chunk':
      return id.seq > lastSeq ? unsettledChunk(id, lastSeq, question) : settledChunk(id, question);
    case 'block':
      return id.seq > lastSeq ? { reason: 'ahead' } : promptBlock(id, question);
  }
}

/** A run is always event `lastSeq + 1`, and `lastSeq` never shrinks. */
function unsettledChunk(id: Chunk, lastSeq: number, { boot, openRun }: CursorQuestion): ResolvedCursor {
  if (id.seq > lastSeq + 1) return { reason: 'ahead' };
  // A run of an earlier process that never became an event.
  if (id.boot !== boot) return { reason: 'diverged' };
  if (openRun?.seq !== id.seq || id.offset > openRun.length) return { reason: 'ahead' };
  return { ok: { seq: id.seq - 1, offset: id.offset } };
}

function settledChunk(id: Chunk, { log, row }: CursorQuestion): ResolvedCursor {
  return withRecord(log, row, id.seq, (record) => {
    const span = textSpan(record);
    if (!span || bootOf(record) !== id.boot || id.offset > span.end - span.start) return { reason: 'diverged' };
    const at = span.start + id.offset;
    if (at === span.end) return { ok: { seq: id.seq, offset: 0 } };
    return isTextBoundary(record, span.start, at)
      ? { ok: { seq: id.seq - 1, offset: id.offset } }
      : { reason: 'malformed' };
  });
}

function promptBlock(id: Block, { log, row }: CursorQuestion): ResolvedCursor {
  return withRecord(log, row, id.seq, (record) => {
    const blocks = typeCode(record) === EVENT_TYPES.turn_started ? promptBlocks(record) : 0;
    // A prompt is durable before any of its blocks is shown, so nothing can have been lost: the cursor is made up.
    if (id.block > blocks) return { reason: 'malformed' };
    return { ok: id.block === blocks ? { seq: id.seq, offset: 0 } : { seq: id.seq - 1, offset: id.block } };
  });
}

function promptBlocks(record: Buffer): number {
  const payload = record.latin1Slice(payloadStart(record), payloadEnd(record));
  const prompt = memberAt(payload, ['prompt']);
  return prompt ? items(payload, prompt.valueStart).length : 0;
}

/** A record that is not there is damage; the replay that follows finds and reports it. */
function withRecord(
  log: EventLog,
  row: SessionRow,
  seq: number,
  look: (record: Buffer) => ResolvedCursor,
): ResolvedCursor {
  if (seq < row.low) return { reason: 'expired' };
  let resolved: ResolvedCursor = { reason: 'diverged' };
  log.scan(row.num, seq, seq, (_seq, record) => {
    resolved = look(record);
    return false;
  });
  return resolved;
}

const BACKSLASH = 92;
const LETTER_U = 117;
const LONGEST_ESCAPE_BYTES = 6;

/**
 * May a JSON string be cut at `at`? Not inside a UTF-8 sequence and not inside an escape. Between the two escapes of a
 * surrogate pair it may: agents cut there too. The end of a text always is one and need not be asked for.
 * @param bytes holds the string's body (without quotes) from `start` on; both offsets count from the buffer's beginning
 */
export function isTextBoundary(bytes: Buffer, start: number, at: number): boolean {
  if (at <= start) return at === start;
  if (((bytes[at] as number) & 0xc0) === 0x80) return false;
  for (let back = at - 1; back >= start && back > at - LONGEST_ESCAPE_BYTES; back--) {
    if (bytes[back] !== BACKSLASH) continue;
    let first = back;
    while (first > start && bytes[first - 1] === BACKSLASH) first--;
    // The last of an even row is escaped itself and ends its escape.
    if ((back - first) % 2 === 1) return true;
    const length = bytes[back + 1] === LETTER_U ? LONGEST_ESCAPE_BYTES : 2;
    return at >= back + length;
  }
  return true;
}
