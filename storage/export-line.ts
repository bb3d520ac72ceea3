/**
 * The lines of an export: a session as one self-describing file of JSON lines.
 *
 *   {"format":"acp-sidecar-export","version":1,"exportedAt":"...","session":{...},"firstSeq":1,"events":3}
 *   {"seq":1,"time":"...","type":"session_created","boot":"...",...,"payload":{...}}       one a line, as `events --json`
 *   {"format":"acp-sidecar-export-end","events":3,"sha256":"..."}                           of all lines before, with \n
 *
 * Payloads stand in it as they are stored, so nothing is lost by parsing and printing again. An event that would
 * not come back exactly (a type of a newer version, a prompt of several lines) has its `record` in base64 instead.
 *
 * Version history: 1 first release.
 */
import './latin1.ts';
import { EVENT_TYPES, type EventFields, type EventType } from '../protocol/event.ts';
import { decodeWire, encodeWire, member, members, parseWire, stringifyWire } from '../protocol/wire-text.ts';
import { decodeRecord, encodeRecord, type StoredEvent, type UnreadableRecord } from './event-codec.ts';

export const EXPORT_VERSION = 1;
export const EXPORT_FORMAT = 'acp-sidecar-export';
export const EXPORT_END = 'acp-sidecar-export-end';

/** What the header says of the session. Times are ISO 8601. */
export interface ExportedSession {
  readonly sessionId: string;
  readonly cwd: string;
  readonly additionalDirectories?: readonly string[];
  readonly createdAt: string;
  readonly updatedAt: string;
  readonly title?: string | null;
  readonly closed?: boolean;
  /** Agent session ids that it was ever bound to. */
  readonly bound: readonly string[];
}

export interface ExportHeader {
  readonly format: typeof EXPORT_FORMAT;
  readonly version: number;
  readonly exportedAt: string;
  readonly session: ExportedSession;
  readonly firstSeq: number;
  readonly events: number;
}

export interface ExportEnd {
  readonly format: typeof EXPORT_END;
  readonly events: number;
  readonly sha256: string;
}

/** Strings of an event that are JSON texts or members of one. */
const RAW = ['meta', 'paramsRest', 'envelopeRest'] as const;
const NEWLINE = /[\r\n]/;

/** Wire text without a line end; or what is wrong with the record. */
export function eventLine(seq: number, record: Buffer, length: number): string | UnreadableRecord {
  const event = decodeRecord(record, length, seq);
  if ('unreadable' in event) return event;
  const head = stringifyWire({
    seq,
    time: new Date(event.time).toISOString(),
    type: event.type,
    required: event.required ? true : undefined,
    synthetic: event.synthetic ? true : undefined,
    turnId: textOf(event.turnId),
    toolCallId: textOf(event.toolCallId),
    childSessionId: textOf(event.childSessionId),
    boot: event.boot,
    kind: event.kind === 0 ? undefined : event.kind,
    text: event.text && [event.text.start, event.text.end],
  });
  const line = `${head.slice(0, -1)}${rawMembers(event)}`;
  const whole = record.subarray(0, length);
  const again = NEWLINE.test(line) ? 'several lines' : recordOfLine(line, seq);
  if (typeof again !== 'string' && again.equals(whole)) return line;
  const base64 = whole.toString('base64');
  return `${head.slice(0, -1)},"record":"${base64}"}`;
}

function rawMembers(event: StoredEvent): string {
  let text = '';
  if (event.meta !== undefined) text += `,"meta":${event.meta}`;
  if (event.paramsRest !== undefined) text += `,"paramsRest":{${event.paramsRest}}`;
  if (event.envelopeRest !== undefined) text += `,"envelopeRest":{${event.envelopeRest}}`;
  return `${text},"payload":${event.payload}}`;
}

function textOf(wire: string | undefined): string | undefined {
  return wire === undefined ? undefined : decodeWire(wire);
}

/** The record of an exported event; a string tells what is wrong with the line. */
export function recordOfLine(line: string, seq: number): Buffer | string {
  let value: Record<string, unknown>;
  try {
    value = parseWire(line) as Record<string, unknown>;
  } catch {
    return 'it is not JSON';
  }
  if (value['seq'] !== seq) return `event ${seq} was expected`;
  if (typeof value['record'] === 'string') {
    const record = Buffer.from(value['record'], 'base64');
    const event = decodeRecord(record, record.length, seq);
    return 'unreadable' in event ? event.detail : record;
  }
  const { type, time, boot = '', kind = 0, text } = value;
  const at = typeof time === 'string' ? Date.parse(time) : Number.NaN;
  if (typeof type !== 'string' || !Object.hasOwn(EVENT_TYPES, type)) return `its type is ${JSON.stringify(type)}`;
  if (
    !(at >= 0) ||
    typeof boot !== 'string' ||
    boot.length > 6 ||
    typeof kind !== 'number' ||
    !(kind >= 0 && kind < 256)
  ) {
    return 'its time, boot or kind is not one';
  }
  const list = members(line);
  const payload = member(list, 'payload');
  if (!payload) return 'it has no payload';
  const fields: Record<string, string> = {};
  for (const name of ['turnId', 'toolCallId', 'childSessionId']) {
    if (typeof value[name] === 'string') fields[name] = encodeWire(value[name]);
  }
  for (const name of RAW) {
    const found = member(list, name);
    if (!found) continue;
    const raw = line.slice(found.valueStart, found.valueEnd);
    fields[name] = name === 'meta' ? raw : raw.slice(1, -1);
  }
  const event: EventFields = {
    ...fields,
    type: type as EventType,
    time: at,
    required: value['required'] === true,
    synthetic: value['synthetic'] === true,
    payload: line.slice(payload.valueStart, payload.valueEnd),
  };
  const span = spanOf(text, event.payload.length);
  if (span === 'bad') return 'its text is not a place in its payload';
  return encodeRecord(event, { boot, kind, ...(span && { text: span }) });
}

function spanOf(text: unknown, length: number): { start: number; end: number } | undefined | 'bad' {
  if (text === undefined) return undefined;
  if (!Array.isArray(text)) return 'bad';
  const [start, end] = text as unknown[];
  if (typeof start !== 'number' || typeof end !== 'number') return 'bad';
  return start >= 0 && start <= end && end <= length ? { start, end } : 'bad';
}
