/**
 * The pump: moves an attachment's position to the tip. Attach, reconnect, slow reader and live follower are this one
 * function; there is no seam between replay and live.
 *
 *   owed at this position?            -> send it
 *   behind the durable head?          -> events from the recent ones, else from the log, page by page
 *   text at head + 1 not yet sent?    -> all of it that has arrived, as one chunk
 *   nothing                           -> at the tip
 */
import { type Position, chunkId, comparePositions } from '../../protocol/event-id.ts';
import {
  decodeRecord,
  hasEnvelope,
  payloadEnd,
  payloadStart,
  textSpan,
  typeCode,
  updateKind,
  varies,
} from '../../storage/event-codec.ts';
import type { EventLog } from '../../storage/event-log.ts';
import type { Outbox } from '../transport/outbox.ts';
import type { Attachment, View } from './attachment.ts';
import type { Judged } from './child-replay.ts';
import { isShown, updateFor } from './client-view.ts';
import type { Order } from './order.ts';
import { type Envelope, UPDATE_TYPE, aroundUpdate, renderEvent, renderUpdate } from './render.ts';
import { hasEnvelopeFields, type Run } from './run.ts';
import { plainTail } from './envelope.ts';

/** What the pump reads of a session. */
export interface PumpSource {
  readonly envelope: Envelope;
  readonly boot: string;
  readonly order: Order;
  readonly log: EventLog;
  /** Events that need not be sent to an attachment, because it saw them as live patches. */
  skips(seq: number, attachment: Attachment): boolean;
  /** Whether a terminal runs at the client of this view. */
  ownsTerminal(view: View, terminalId: string): boolean;
  /** The log is not what it should be: a gap or a record that cannot be read. */
  damaged(seq: number, detail: string): void;
}

/** What the pump writes into: an `Outbox`, or what takes its place. */
export type PumpOutbox = Pick<Outbox, 'total' | 'room' | 'send' | 'begin' | 'text' | 'copy' | 'end'>;

export type Pumped = 'tip' | 'turn' | 'full' | 'waiting' | 'damaged';

/** What became of one event; `part`: something owed comes before the rest of it. */
type Emitted = 'whole' | 'part' | 'damaged';

/**
 * Pages are brought into memory off the main thread before they are read. When that took no time they were there
 * already, and so, most likely, are the next ones: a warm log is asked once in a while only.
 */
const PROBE_EVENTS = 64;
const COLD_EVENTS = 256;
const WARM_EVENTS = 4096;
const WARM_MS = 3;
const SMALL_BYTES = 2048;

/**
 * Moves the attachment at most about `budget` bytes. `tip`: nothing more to do; `turn`: its turn is over;
 * `full`: the outbox has no room; `waiting`: pages are being read, `resume` will be called; `damaged`: the log cannot
 * be read any further, the source has been told.
 */
export function pump(
  source: PumpSource,
  attachment: Attachment,
  outbox: PumpOutbox,
  budget: number,
  resume: () => void,
): Pumped {
  const { order } = source;
  const turnEnd = outbox.total + budget;
  // Up to here nothing has to be asked: neither is the turn over nor the outbox full.
  let stopAt = outbox.total;
  for (;;) {
    if (outbox.total >= stopAt) {
      if (outbox.total >= turnEnd) return 'turn';
      const { room } = outbox;
      if (room === 0) {
        attachment.behind = true;
        return 'full';
      }
      stopAt = Math.min(turnEnd, outbox.total + room);
    }
    const owed = attachment.nextOwed;
    if (owed && comparePositions(owed, attachment.position) <= 0) {
      attachment.takeOwed();
      outbox.send(owed.wire);
      continue;
    }
    if (attachment.position.seq < order.head) {
      const record = order.recent(attachment.position.seq + 1);
      if (record) {
        const emitted = emit(source, attachment, outbox, attachment.position.seq + 1, record, record.length);
        if (emitted === 'damaged') return emitted;
      } else {
        const paged = pumpPage(source, attachment, outbox, stopAt, resume);
        if (paged) return paged;
      }
      continue;
    }
    const front = order.front;
    if (front && attachment.position.offset < front.length) {
      emitFront(source, attachment, outbox, front);
      continue;
    }
    attachment.behind = false;
    return 'tip';
  }
}

/** Sends events from the log. Undefined: look again. */
function pumpPage(
  source: PumpSource,
  attachment: Attachment,
  outbox: PumpOutbox,
  stopAt: number,
  resume: () => void,
): Pumped | undefined {
  const { log, order } = source;
  const from = attachment.position.seq + 1;
  if (from > attachment.prefetched) {
    attachment.behind = true;
    prefetch(source, attachment, from, resume);
    return 'waiting';
  }
  if (from + COLD_EVENTS / 2 > attachment.prefetched && attachment.prefetched < order.head) {
    prefetch(source, attachment, attachment.prefetched + 1, resume);
  }
  const to = Math.min(order.head, attachment.prefetched);
  let emitted = 'whole' as Emitted;
  const scanned = log.scan(order.num, from, to, (seq, record, length) => {
    emitted = emit(source, attachment, outbox, seq, record, length);
    return emitted === 'whole' && !owesHere(attachment) && outbox.total < stopAt;
  });
  if (emitted === 'damaged') return 'damaged';
  if (scanned.outcome === 'end') return attachment.position.seq >= from || owesHere(attachment) ? undefined : 'turn';
  source.damaged(scanned.seq, 'an event is missing');
  return 'damaged';
}

function owesHere(attachment: Attachment): boolean {
  const owed = attachment.nextOwed;
  return owed !== undefined && comparePositions(owed, attachment.position) <= 0;
}

function prefetch(source: PumpSource, attachment: Attachment, from: number, resume: () => void): void {
  if (attachment.prefetching) return;
  attachment.prefetching = true;
  const { log, order } = source;
  const events = attachment.cold ? COLD_EVENTS : PROBE_EVENTS;
  const started = performance.now();
  const done = (): void => {
    attachment.prefetching = false;
    attachment.cold = performance.now() - started > WARM_MS;
    attachment.prefetched = from - 1 + (attachment.cold ? events : WARM_EVENTS);
    resume();
  };
  log.prefetch(order.num, from, Math.min(order.head, from + events - 1)).then(done, done);
}

/** Sends what is left of one durable event and moves the position behind it, or to what is owed before its end. */
function emit(
  source: PumpSource,
  attachment: Attachment,
  outbox: PumpOutbox,
  seq: number,
  record: Buffer,
  length: number,
): Emitted {
  const { position, view } = attachment;
  const from = position.offset;
  const next = { seq, offset: 0 };
  const judged = attachment.childReplay && judge(attachment, childOf(record, length, seq));
  if (typeof judged === 'object') return stepOver(attachment, next, judged.goOnAt) ? 'whole' : 'part';
  const isReplay = judged ? judged === 'full' : isReplayed(attachment);
  if (typeCode(record) !== UPDATE_TYPE) return emitOther(source, attachment, outbox, seq, record, length, isReplay);
  const kind = updateKind(record);
  if (view.hidden.has(kind) || source.skips(seq, attachment)) {
    attachment.position = next;
    return 'whole';
  }
  const span = textSpan(record);
  let to = Number.POSITIVE_INFINITY;
  if (span) {
    const bytes = span.end - span.start;
    const owed = attachment.nextOwed;
    if (owed && owed.seq === seq - 1 && owed.offset > from && owed.offset < bytes) to = owed.offset;
    if (from >= bytes && from > 0) {
      attachment.position = next;
      return 'whole';
    }
  }
  const whole = to === Number.POSITIVE_INFINITY;
  if (from === 0 && whole && !hasEnvelope(record) && !view.sidecar && !varies(record)) {
    writePlain(source.envelope, outbox, seq, record, isReplay);
  } else {
    const stored = decodeRecord(record, length, seq, false);
    if ('unreadable' in stored) {
      source.damaged(seq, stored.detail);
      return 'damaged';
    }
    if (!isShown(attachment, kind, stored.childSessionId)) {
      attachment.position = next;
      return 'whole';
    }
    let update = stored.payload;
    if (stored.text && (from > 0 || !whole)) {
      const { start, end } = stored.text;
      update = update.slice(0, start) + update.slice(start + from, Math.min(end, start + to)) + update.slice(end);
    }
    if (!stored.text) update = updateFor(view, kind, update, (...asked) => source.ownsTerminal(...asked));
    const eventId = whole ? `${source.envelope.logId}-${seq}` : chunkId(source.envelope.logId, seq, stored.boot, to);
    outbox.send(renderUpdate(source.envelope, stored, update, eventId, isReplay, view.sidecar));
  }
  attachment.position = whole ? next : { seq: seq - 1, offset: to };
  return whole ? 'whole' : 'part';
}

/** Whether what comes next is part of a full replay. */
function isReplayed(attachment: Attachment): boolean {
  const until = attachment.replayUntil;
  if (until === undefined) return false;
  if (comparePositions(attachment.position, until) < 0) return true;
  attachment.replayUntil = undefined;
  return false;
}

function judge(attachment: Attachment, child: string | undefined): Judged {
  const { childReplay, position } = attachment;
  if (!childReplay?.isOver(position)) return childReplay?.judge(position, child);
  attachment.childReplay = undefined;
  return undefined;
}

/** The child that an event is of. What cannot be read is found to be so when it is sent. */
function childOf(record: Buffer, length: number, seq: number): string | undefined {
  if (typeCode(record) !== UPDATE_TYPE || !hasEnvelope(record)) return undefined;
  const event = decodeRecord(record, length, seq, false);
  return 'unreadable' in event ? undefined : event.childSessionId;
}

/** Moves the position behind what is not shown, at most to `goOnAt`; true when that is the end of it. */
function stepOver(attachment: Attachment, end: Position, goOnAt: Position): boolean {
  const whole = comparePositions(end, goOnAt) <= 0;
  attachment.position = whole ? end : goOnAt;
  return whole;
}

/** The common case: stored bytes between two constant strings. */
function writePlain(envelope: Envelope, outbox: PumpOutbox, seq: number, record: Buffer, isReplay: boolean): void {
  const start = payloadStart(record);
  const end = payloadEnd(record);
  const tail = plainTail(`${envelope.logId}-${seq}`, isReplay);
  outbox.begin(envelope.head.length + end - start + tail.length);
  outbox.text(envelope.head);
  outbox.copy(record, start, end);
  outbox.text(tail);
  outbox.end();
}

function emitOther(
  source: PumpSource,
  attachment: Attachment,
  outbox: PumpOutbox,
  seq: number,
  record: Buffer,
  length: number,
  isReplay: boolean,
): Emitted {
  const event = decodeRecord(record, length, seq, false);
  if ('unreadable' in event) {
    source.damaged(seq, event.detail);
    return 'damaged';
  }
  for (const { wire } of renderEvent(source.envelope, event, attachment, isReplay, attachment.position.offset)) {
    outbox.send(wire);
  }
  attachment.position = { seq, offset: 0 };
  return 'whole';
}

/** Sends what has arrived of the text that is not an event yet, as one chunk. */
function emitFront(source: PumpSource, attachment: Attachment, outbox: PumpOutbox, run: Run): void {
  const { envelope, order } = source;
  const { shape } = run;
  const from = attachment.position.offset;
  const seq = order.head + 1;
  let to = run.length;
  const owed = attachment.nextOwed;
  if (owed && owed.seq === order.head && owed.offset > from && owed.offset < to) to = owed.offset;
  const judged = judge(attachment, shape.childSessionId);
  if (typeof judged === 'object') {
    stepOver(attachment, { seq: order.head, offset: to }, judged.goOnAt);
    return;
  }
  const isReplay = judged ? judged === 'full' : isReplayed(attachment);
  const until = attachment.replayUntil;
  if (!judged && isReplay && until?.seq === order.head) to = Math.min(to, until.offset);
  if (isShown(attachment, shape.kind, shape.childSessionId)) {
    const eventId = chunkId(envelope.logId, seq, source.boot, to);
    const { sidecar } = attachment.view;
    const event = { ...shape, turnId: run.turnId, time: run.bornAt, synthetic: false };
    const own = sidecar || hasEnvelopeFields(shape);
    const [head, tail] = own
      ? aroundUpdate(envelope, event, eventId, isReplay, sidecar)
      : [envelope.head, plainTail(eventId, isReplay)];
    const at = run.textStart;
    if (to - from <= SMALL_BYTES) {
      // One write of one string: for a short text every call counts.
      outbox.send(head + shape.prefix + run.bytes.latin1Slice(at + from, at + to) + shape.suffix + tail);
    } else {
      outbox.begin(head.length + shape.prefix.length + to - from + shape.suffix.length + tail.length);
      outbox.text(head);
      outbox.text(shape.prefix);
      outbox.copy(run.bytes, at + from, at + to);
      outbox.text(shape.suffix);
      outbox.text(tail);
      outbox.end();
    }
  }
  attachment.position = { seq: order.head, offset: to };
}
