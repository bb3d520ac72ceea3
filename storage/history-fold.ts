/**
 * Folds events into a cached history, a window at a time: only the entries that were touched since the last commit and
 * the last one are in memory. What is folded is what a full replay shows of the session itself (its children have
 * histories of their own in their agent), so history and replay agree.
 */
import { crc32 } from 'node:zlib';
import { EVENT_TYPES, eventTypeName } from '../protocol/event.ts';
import { isObject, type JsonObject } from '../protocol/json-rpc.ts';
import { foldUpdate } from '../protocol/v1/fold.ts';
import { emptyTranscript, type Entry, type Transcript } from '../protocol/v1/transcript.ts';
import { UPDATE_KINDS } from '../protocol/v1/update-kinds.ts';
import { decodeWire, parseWire } from '../protocol/wire-text.ts';
import {
  decodeRecord,
  RECORD_VERSION,
  type StoredEvent,
  typeCode,
  type UnreadableRecord,
  updateKind,
} from './event-codec.ts';
import type { HistoryFile } from './history-file.ts';
import type { StoredEntry } from './history-message.ts';

/** A window is written when its payloads have this many bytes. */
const WINDOW_BYTES = 512 * 1024;
const WINDOW_EVENTS = 500;
const CRC_BYTES = 4;

/** Kinds of update that make or change entries; all others are stepped over. */
const ENTRY_KINDS = new Set<number>([
  UPDATE_KINDS.user_message_chunk,
  UPDATE_KINDS.agent_message_chunk,
  UPDATE_KINDS.agent_thought_chunk,
  UPDATE_KINDS.tool_call,
  UPDATE_KINDS.tool_call_update,
  UPDATE_KINDS.compaction_update,
  UPDATE_KINDS.compaction_summary_chunk,
  UPDATE_KINDS.session_message,
  UPDATE_KINDS.session_message_chunk,
  UPDATE_KINDS.subagent_update,
]);

/** The member that names the entry that an update belongs to. */
const KEYS: Readonly<Record<string, readonly [type: string, member: string]>> = {
  tool_call: ['tool_call', 'toolCallId'],
  tool_call_update: ['tool_call', 'toolCallId'],
  compaction_update: ['compaction', 'compactionId'],
  compaction_summary_chunk: ['compaction', 'compactionId'],
  session_message: ['session_message', 'messageId'],
  session_message_chunk: ['session_message', 'messageId'],
  subagent_update: ['subagent', 'sessionId'],
};

/** The cached entry that is needed is not what was written. */
export class HistoryDamage extends Error {}

/** The CRC-32 that ends a record. */
export function recordCrc(record: Buffer, length: number): number {
  return length < CRC_BYTES ? 0 : record.readUInt32BE(length - CRC_BYTES);
}

/** The updates that a replay shows for an event, parsed. */
export function updatesOf(event: StoredEvent): JsonObject[] {
  if (event.childSessionId !== undefined || event.type.startsWith('unknown_')) return [];
  const payload = parseWire(event.payload);
  if (!isObject(payload)) return [];
  switch (event.type) {
    case 'update':
      return [payload];
    case 'turn_started': {
      const { prompt } = payload;
      const messageId = decodeWire(event.turnId ?? '');
      if (!Array.isArray(prompt)) return [];
      return prompt.map((content: unknown) => ({ sessionUpdate: 'user_message_chunk', content, messageId }));
    }
    case 'missing':
      return [said(`[${String(payload['text'])}]`)];
    case 'session_bound':
      return typeof payload['note'] === 'string' ? [said(payload['note'])] : [];
    default:
      return [];
  }
}

function said(text: string): JsonObject {
  return { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } };
}

/** Which records are decoded: those that a history is made of, and those that may have to be refused. */
function isLookedAt(record: Buffer): boolean {
  if (record[0] !== RECORD_VERSION) return true;
  switch (typeCode(record)) {
    case EVENT_TYPES.update:
      return ENTRY_KINDS.has(updateKind(record));
    case EVENT_TYPES.turn_started:
    case EVENT_TYPES.missing:
    case EVENT_TYPES.session_bound:
      return true;
    default:
      return eventTypeName(typeCode(record)) === undefined;
  }
}

interface Origin {
  readonly seq: number;
  readonly time: number;
  readonly turnId: string | undefined;
}

export class HistoryFold {
  readonly file: HistoryFile;
  /** `entries` has the length of the whole history and holds only the window. */
  readonly #transcript: Transcript = emptyTranscript();
  readonly #origins = new Map<number, Origin>();
  readonly #dirty = new Set<number>();
  /** Ordinals by the hash of their key; filled when the first key comes. */
  #byHash: Map<number, number[]> | undefined;
  #seq: number;
  #crc: number;
  #windowBytes = 0;
  #windowEvents = 0;

  constructor(file: HistoryFile) {
    this.file = file;
    this.#seq = file.mark.lastSeq;
    this.#crc = file.mark.lastCrc;
    this.#transcript.entries.length = file.entries;
    if (file.entries > 0) this.#fetch(file.entries - 1);
  }

  /** Last event that was folded in. */
  get seq(): number {
    return this.#seq;
  }

  /** @throws HistoryDamage; returns what is wrong when the event cannot be read */
  fold(seq: number, record: Buffer, length: number): UnreadableRecord | undefined {
    if (isLookedAt(record)) {
      const event = decodeRecord(record, length, seq);
      if ('unreadable' in event) return event;
      const turnId = event.turnId === undefined ? undefined : decodeWire(event.turnId);
      for (const update of updatesOf(event)) this.#update(update, { seq, time: event.time, turnId });
      this.#windowBytes += event.payload.length;
      this.#windowEvents++;
    }
    this.#seq = seq;
    this.#crc = recordCrc(record, length);
    return undefined;
  }

  get windowIsFull(): boolean {
    return this.#windowBytes >= WINDOW_BYTES || this.#windowEvents >= WINDOW_EVENTS;
  }

  /** Writes the window and lets go of it. @throws when the medium cannot be written */
  commit(): void {
    const { entries, index, unknown } = this.#transcript;
    for (const ordinal of [...this.#dirty].toSorted((a, b) => a - b)) {
      const origin = this.#originOf(ordinal);
      const entry = entries[ordinal] as Entry;
      const key = keyOf(entry);
      const stored: StoredEntry = { ...origin, entry };
      this.file.put(ordinal, origin.seq, key === undefined ? 0 : hashOf(key), Buffer.from(JSON.stringify(stored)));
    }
    this.file.commit({ lastSeq: this.#seq, lastCrc: this.#crc });
    this.#dirty.clear();
    this.#windowBytes = 0;
    this.#windowEvents = 0;
    unknown.length = 0;
    const last = entries.length - 1;
    for (const [ordinal] of this.#origins) {
      if (ordinal === last) continue;
      const key = keyOf(entries[ordinal] as Entry);
      if (key !== undefined) delete index[key];
      // oxlint-disable-next-line typescript/no-array-delete -- the ordinals after it stay
      delete entries[ordinal];
      this.#origins.delete(ordinal);
    }
  }

  #update(update: JsonObject, origin: Origin): void {
    const { entries, index } = this.#transcript;
    const key = keyOfUpdate(update);
    if (key !== undefined && index[key] === undefined) this.#recall(key);
    const before = entries.length;
    foldUpdate(this.#transcript, update);
    if (entries.length > before) {
      this.#origins.set(before, origin);
      if (key !== undefined) this.#remember(hashOf(key), before);
    }
    const touched = key === undefined ? entries.length - 1 : index[key];
    if (touched !== undefined && touched >= 0) this.#dirty.add(touched);
  }

  /** Brings the entry of a key back into the window, if there is one. */
  #recall(key: string): void {
    for (const ordinal of this.#hashes().get(hashOf(key)) ?? []) {
      const had = this.#origins.has(ordinal);
      const entry = this.#fetch(ordinal);
      if (keyOf(entry) === key) return;
      if (had) continue;
      // Another key of the same hash.
      const other = keyOf(entry);
      if (other !== undefined) delete this.#transcript.index[other];
      // oxlint-disable-next-line typescript/no-array-delete -- the ordinals after it stay
      delete this.#transcript.entries[ordinal];
      this.#origins.delete(ordinal);
    }
  }

  #fetch(ordinal: number): Entry {
    const known = this.#transcript.entries[ordinal];
    if (known) return known;
    const { seq, time, turnId, entry } = readEntry(this.file, ordinal);
    this.#transcript.entries[ordinal] = entry;
    this.#origins.set(ordinal, { seq, time, turnId });
    const key = keyOf(entry);
    if (key !== undefined) this.#transcript.index[key] = ordinal;
    return entry;
  }

  #hashes(): Map<number, number[]> {
    if (this.#byHash) return this.#byHash;
    this.#byHash = new Map();
    for (let ordinal = 0; ordinal < this.file.entries; ordinal++) {
      const { hash } = this.file.locator(ordinal);
      if (hash !== 0) this.#remember(hash, ordinal);
    }
    return this.#byHash;
  }

  #remember(hash: number, ordinal: number): void {
    const hashes = this.#hashes();
    const known = hashes.get(hash);
    if (!known) hashes.set(hash, [ordinal]);
    else if (!known.includes(ordinal)) known.push(ordinal);
  }

  #originOf(ordinal: number): Origin {
    const origin = this.#origins.get(ordinal);
    if (!origin) throw new Error(`entry ${ordinal} is not in the window`);
    return origin;
  }
}

/** @throws HistoryDamage */
export function readEntry(file: HistoryFile, ordinal: number): StoredEntry {
  const json = file.read(ordinal);
  if (!json) throw new HistoryDamage(`entry ${ordinal} is not what was written`);
  return JSON.parse(json.toString()) as StoredEntry;
}

/** Folds an update into an entry that it names; others stay as they are. */
export function patchEntry(entry: Entry, update: JsonObject): void {
  const key = keyOf(entry);
  if (key === undefined || key !== keyOfUpdate(update)) return;
  const transcript = emptyTranscript();
  transcript.entries.push(entry);
  transcript.index[key] = 0;
  foldUpdate(transcript, update);
}

function keyOfUpdate(update: JsonObject): string | undefined {
  const kind = update['sessionUpdate'];
  const found = typeof kind === 'string' && Object.hasOwn(KEYS, kind) ? KEYS[kind] : undefined;
  const id = found && update[found[1]];
  return found && typeof id === 'string' ? `${found[0]}:${id}` : undefined;
}

function keyOf(entry: Entry): string | undefined {
  if (entry.type === 'message') return undefined;
  return `${entry.type}:${entry.type === 'tool_call' ? entry.toolCallId : entry.id}`;
}

/** Never 0, which stands for "no key". */
function hashOf(key: string): number {
  return crc32(key) || 1;
}
