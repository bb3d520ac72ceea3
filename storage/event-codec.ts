/**
 * The record codec: the only code that knows how an event lies on disk.
 *
 *   0  u8   schema version
 *   1  u8   event type (protocol/event.ts)
 *   2  u8   flags: 1 required, 2 synthetic, 4 text (the payload has a text span), 8 envelope (a field of the
 *          agent's envelope is kept: meta, childSessionId, paramsRest, envelopeRest), 16 varies (clients may be
 *          shown it differently)
 *   3  u8   kind of update (protocol/v1/update-kinds.ts), 0 when it is none or unknown
 *   4  u48  time, milliseconds since 1970
 *  10  u32  length of the fields
 *  14  u32  start of the text span, from the start of the record (0: none)
 *  18  u32  end of the text span
 *  22  u32  length of the payload
 *  26  6 B  boot id of the writer (ASCII)
 *  32  fields, then payload, then u32 CRC-32 of all before it
 *
 * Fields are `u8 tag, u32 length, bytes`; readers step over tags they do not know. The text span is the JSON string
 * body of a coalesced message, so a cursor inside it is a slice and nothing is parsed on replay.
 *
 * Version history: 1 first release.
 */
import './latin1.ts';
import { crc32 } from 'node:zlib';
import { EVENT_TYPES, type EventFields, type EventType, eventTypeName } from '../protocol/event.ts';

export const RECORD_VERSION = 1;
export const HEADER_BYTES = 32;
const TRAILER_BYTES = 4;
const FIELD_HEAD_BYTES = 5;
const BOOT_BYTES = 6;
const SPACE = 32;
const FLAG_REQUIRED = 1;
const FLAG_SYNTHETIC = 2;
const FLAG_TEXT = 4;
const FLAG_ENVELOPE = 8;
const FLAG_VARIES = 16;

const TAGS = { turnId: 1, toolCallId: 2, meta: 3, childSessionId: 4, paramsRest: 5, envelopeRest: 6 } as const;
type FieldName = keyof typeof TAGS;
const TAG_NAMES = new Map<number, FieldName>(Object.entries(TAGS).map(([name, tag]) => [tag, name as FieldName]));

/** A decoded record. Strings are wire text (one character a byte). */
export interface StoredEvent extends EventFields {
  readonly seq: number;
  readonly boot: string;
  readonly kind: number;
  /** Span of the coalesced text inside `payload`, when it is a text event. */
  readonly text?: { readonly start: number; readonly end: number };
}

/** Why a record is not an event that we can read. */
export interface UnreadableRecord {
  readonly unreadable: 'damaged' | 'newer' | 'unknown_required';
  readonly seq: number;
  readonly detail: string;
}

export interface RecordExtras {
  readonly boot: string;
  readonly kind?: number;
  /** Clients may be shown it differently, by what they can. */
  readonly varies?: boolean;
  readonly text?: { readonly start: number; readonly end: number };
}

/** Plain stores: Node's checked writers cost more than all else in a small record. */
function putU32(into: Buffer, at: number, value: number): void {
  into[at] = value >>> 24;
  into[at + 1] = value >>> 16;
  into[at + 2] = value >>> 8;
  into[at + 3] = value;
}

/** Small records share slabs: an allocation outside the heap for each would cost more than the record. */
const SLAB_BYTES = 64 * 1024;
let slab = Buffer.alloc(0);
let slabAt = 0;

export function allocateRecord(bytes: number): Buffer {
  if (bytes > SLAB_BYTES / 8) return Buffer.allocUnsafeSlow(bytes);
  if (slabAt + bytes > slab.length) {
    slab = Buffer.allocUnsafeSlow(SLAB_BYTES);
    slabAt = 0;
  }
  const record = slab.subarray(slabAt, slabAt + bytes);
  slabAt += bytes;
  return record;
}

function fieldBytes(value: string | undefined): number {
  return value === undefined ? 0 : FIELD_HEAD_BYTES + value.length;
}

type Fields = Pick<EventFields, FieldName>;

// One by one and not in a loop over names: this runs for every event, and most events come while the code is cold.
function fieldsBytes(event: Fields): number {
  return (
    fieldBytes(event.turnId) +
    fieldBytes(event.toolCallId) +
    fieldBytes(event.meta) +
    fieldBytes(event.childSessionId) +
    fieldBytes(event.paramsRest) +
    fieldBytes(event.envelopeRest)
  );
}

/** Writes one field, if there is one; returns the offset behind it. */
function writeField(into: Buffer, at: number, tag: number, value: string | undefined): number {
  if (value === undefined) return at;
  into[at] = tag;
  putU32(into, at + 1, value.length);
  into.latin1Write(value, at + FIELD_HEAD_BYTES);
  return at + FIELD_HEAD_BYTES + value.length;
}

/** Writes header and fields; returns the offset where the payload starts. `into` must be long enough. */
export function writeHead(into: Buffer, event: Omit<EventFields, 'payload'>, extras: RecordExtras): number {
  const fields = fieldsBytes(event);
  into[0] = RECORD_VERSION;
  into[1] = EVENT_TYPES[event.type];
  const envelope = event.meta ?? event.childSessionId ?? event.paramsRest ?? event.envelopeRest;
  into[2] =
    (event.required ? FLAG_REQUIRED : 0) |
    (event.synthetic ? FLAG_SYNTHETIC : 0) |
    (envelope === undefined ? 0 : FLAG_ENVELOPE) |
    (extras.varies ? FLAG_VARIES : 0);
  into[3] = extras.kind ?? 0;
  const high = Math.floor(event.time / 0x1_0000_0000);
  into[4] = high >>> 8;
  into[5] = high;
  putU32(into, 6, event.time >>> 0);
  putU32(into, 10, fields);
  putU32(into, 14, 0);
  putU32(into, 18, 0);
  putU32(into, 22, 0);
  for (let i = 0; i < BOOT_BYTES; i++) into[26 + i] = i < extras.boot.length ? extras.boot.charCodeAt(i) : SPACE;
  let at = writeField(into, HEADER_BYTES, TAGS.turnId, event.turnId);
  at = writeField(into, at, TAGS.toolCallId, event.toolCallId);
  at = writeField(into, at, TAGS.meta, event.meta);
  at = writeField(into, at, TAGS.childSessionId, event.childSessionId);
  at = writeField(into, at, TAGS.paramsRest, event.paramsRest);
  return writeField(into, at, TAGS.envelopeRest, event.envelopeRest);
}

/** Closes a record whose payload ends at `payloadEnd`; returns the record's length. */
export function sealRecord(into: Buffer, payloadEnd: number, text?: { start: number; end: number }): number {
  const payloadStart = HEADER_BYTES + into.readUInt32BE(10);
  if (text) {
    into[2] = (into[2] as number) | FLAG_TEXT;
    putU32(into, 14, text.start);
    putU32(into, 18, text.end);
  }
  putU32(into, 22, payloadEnd - payloadStart);
  putU32(into, payloadEnd, crc32(into.subarray(0, payloadEnd)));
  return payloadEnd + TRAILER_BYTES;
}

/** Encodes one event. */
export function encodeRecord(event: EventFields, extras: RecordExtras): Buffer {
  const size = HEADER_BYTES + fieldsBytes(event) + event.payload.length + TRAILER_BYTES;
  const record = allocateRecord(size);
  const payloadStart = writeHead(record, event, extras);
  record.latin1Write(event.payload, payloadStart);
  const text = extras.text && { start: payloadStart + extras.text.start, end: payloadStart + extras.text.end };
  sealRecord(record, payloadStart + event.payload.length, text);
  return record;
}

/** The cheap look at a record that replay needs: where its parts are, without decoding them. */
export function payloadStart(record: Buffer): number {
  return HEADER_BYTES + record.readUInt32BE(10);
}
export function payloadEnd(record: Buffer): number {
  return payloadStart(record) + record.readUInt32BE(22);
}
export function recordLength(record: Buffer): number {
  return payloadEnd(record) + TRAILER_BYTES;
}
export function typeCode(record: Buffer): number {
  return record[1] as number;
}
export function updateKind(record: Buffer): number {
  return record[3] as number;
}
/** True when the envelope around the update is more than sessionId and our own `_meta`. */
export function hasEnvelope(record: Buffer): boolean {
  return ((record[2] as number) & FLAG_ENVELOPE) !== 0;
}
/** True when what is shown of the update depends on the client. */
export function varies(record: Buffer): boolean {
  return ((record[2] as number) & FLAG_VARIES) !== 0;
}
/** Start and end of the text span in the record; undefined when it is not a text event. */
export function textSpan(record: Buffer): { start: number; end: number } | undefined {
  if (((record[2] as number) & FLAG_TEXT) === 0) return undefined;
  return { start: record.readUInt32BE(14), end: record.readUInt32BE(18) };
}
export function timeOf(record: Buffer): number {
  return record.readUIntBE(4, 6);
}
export function bootOf(record: Buffer): string {
  return record.latin1Slice(26, 32).trimEnd();
}

/** Why the parts of a record cannot be told, or undefined: version and lengths, for records that are not decoded. */
export function unreadableHead(record: Buffer, length: number, seq: number): UnreadableRecord | undefined {
  const damaged = (detail: string): UnreadableRecord => ({ unreadable: 'damaged', seq, detail });
  if (length < HEADER_BYTES + TRAILER_BYTES) return damaged(`record of ${length} bytes`);
  const version = record[0] as number;
  if (version > RECORD_VERSION) {
    return {
      unreadable: 'newer',
      seq,
      detail: `record version ${version}, this version reads up to ${RECORD_VERSION}`,
    };
  }
  return version === 0 || recordLength(record) !== length ? damaged('lengths do not add up') : undefined;
}

/** The same with the checksum: why a record is not what was written. */
export function unreadableRecord(record: Buffer, length: number, seq: number): UnreadableRecord | undefined {
  const unreadable = unreadableHead(record, length, seq);
  if (unreadable) return unreadable;
  const end = length - TRAILER_BYTES;
  if (crc32(record.subarray(0, end)) === record.readUInt32BE(end)) return undefined;
  return { unreadable: 'damaged', seq, detail: 'checksum does not match' };
}

/** Decodes a record of `length` bytes. `checked` also verifies the checksum. */
export function decodeRecord(
  record: Buffer,
  length: number,
  seq: number,
  checked = true,
): StoredEvent | UnreadableRecord {
  const unreadable = checked ? unreadableRecord(record, length, seq) : unreadableHead(record, length, seq);
  if (unreadable) return unreadable;
  const damaged = (detail: string): UnreadableRecord => ({ unreadable: 'damaged', seq, detail });
  const flags = record[2] as number;
  const type = eventTypeName(typeCode(record));
  const required = (flags & FLAG_REQUIRED) !== 0;
  if (!type && required) {
    return {
      unreadable: 'unknown_required',
      seq,
      detail: `event type ${typeCode(record)} is not known to this version`,
    };
  }
  const start = payloadStart(record);
  const fields: Partial<Record<FieldName, string>> = {};
  for (let at = HEADER_BYTES; at < start; ) {
    const bytesAt = at + FIELD_HEAD_BYTES;
    const bytesEnd = bytesAt + (bytesAt <= start ? record.readUInt32BE(at + 1) : 0);
    if (bytesEnd > start || bytesAt > start) return damaged('fields do not add up');
    const name = TAG_NAMES.get(record[at] as number);
    if (name) fields[name] = record.latin1Slice(bytesAt, bytesEnd);
    at = bytesEnd;
  }
  const span = textSpan(record);
  return {
    seq,
    type: type ?? (`unknown_${typeCode(record)}` as EventType),
    time: record.readUIntBE(4, 6),
    required,
    synthetic: (flags & FLAG_SYNTHETIC) !== 0,
    boot: bootOf(record),
    kind: updateKind(record),
    payload: record.latin1Slice(start, payloadEnd(record)),
    ...fields,
    ...(span ? { text: { start: span.start - start, end: span.end - start } } : {}),
  };
}
