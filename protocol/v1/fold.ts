/**
 * Folds `update` objects, in the order in which a client sees them, into a transcript.
 *
 * Two streams that say the same fold to the same: text cut at other places, snapshots repeated, progress patches that
 * a later patch overrides, and whatever the sidecar adds under `_meta.sidecar` make no difference. That is what lets a
 * test compare a live client, a replayed one and one that was cut.
 *
 * Message boundaries (ACP v1, message-id RFD): a chunk goes to the last entry when that is a message of the same kind
 * and the ids do not differ; null and absent are the same and take the id of a later chunk. A new tool call or another
 * entity ends a message; a patch of a known one does not.
 *
 * The transcript belongs to the fold: it is changed in place and returned. Updates are never changed, but their parts
 * are kept by reference.
 */
import { isObject, type JsonObject } from '../json-rpc.ts';
import {
  type EntityEntry,
  emptyTranscript,
  type Piece,
  type Role,
  type ToolCallEntry,
  type Transcript,
} from './transcript.ts';

export interface FoldOptions {
  /** Kept on the entry that this update makes. */
  readonly eventId?: string | undefined;
}

/** The transcript of a whole stream. */
export function transcriptOf(updates: Iterable<unknown>): Transcript {
  const transcript = emptyTranscript();
  for (const update of updates) foldUpdate(transcript, update);
  return transcript;
}

const NO_OPTIONS: FoldOptions = {};

/** Folds one `update` in. What cannot be read is kept under `unknown`. */
export function foldUpdate(transcript: Transcript, update: unknown, options: FoldOptions = NO_OPTIONS): Transcript {
  if (!isObject(update) || !foldKnown(transcript, update, options)) {
    transcript.unknown.push({ at: transcript.entries.length, update: withoutOurs(update) });
  }
  return transcript;
}

/** Returns false when the update is not understood. */
function foldKnown(transcript: Transcript, update: JsonObject, options: FoldOptions): boolean {
  switch (update['sessionUpdate']) {
    case 'agent_message_chunk':
      return foldChunk(transcript, 'agent', update, options);
    case 'agent_thought_chunk':
      return foldChunk(transcript, 'thought', update, options);
    case 'user_message_chunk':
      return foldChunk(transcript, 'user', update, options);
    case 'tool_call':
    case 'tool_call_update':
      return foldToolCall(transcript, update, options);
    case 'compaction_update':
      return foldEntity(transcript, 'compaction', 'compactionId', 'summary', update, options);
    case 'compaction_summary_chunk':
      return foldEntityChunk(transcript, 'compaction', 'compactionId', update, options);
    case 'session_message':
      return foldEntity(transcript, 'session_message', 'messageId', 'content', update, options);
    case 'session_message_chunk':
      return foldEntityChunk(transcript, 'session_message', 'messageId', update, options);
    case 'subagent_update':
      return foldEntity(transcript, 'subagent', 'sessionId', undefined, update, options);
    // Live events rather than history: notices, and the updates of `session/attach` that turns and approvals repeat.
    case 'notice':
    case 'prompt_received':
    case 'turn_complete':
    case 'permission_resolved':
    case 'client_disconnected':
      return true;
    default:
      return foldSnapshot(transcript, update);
  }
}

function foldSnapshot(transcript: Transcript, update: JsonObject): boolean {
  switch (update['sessionUpdate']) {
    case 'plan':
      transcript.plan = restOf(update);
      return true;
    case 'plan_update': {
      const plan = update['plan'];
      if (!isObject(plan) || typeof plan['planId'] !== 'string') return false;
      setOwn(transcript.plans, plan['planId'], restOf(update));
      return true;
    }
    case 'plan_removed':
      if (typeof update['planId'] !== 'string') return false;
      delete transcript.plans[update['planId']];
      return true;
    case 'current_mode_update':
      if (typeof update['currentModeId'] !== 'string') return false;
      transcript.mode = update['currentModeId'];
      return true;
    case 'config_option_update':
      if (!Array.isArray(update['configOptions'])) return false;
      transcript.configOptions = update['configOptions'];
      return true;
    case 'available_commands_update':
      if (!Array.isArray(update['availableCommands'])) return false;
      transcript.commands = update['availableCommands'];
      return true;
    case 'usage_update':
      transcript.usage = restOf(update);
      return true;
    case 'session_info_update':
      patch(transcript.info, restOf(update), 'clear');
      return true;
    default:
      return false;
  }
}

function foldChunk(transcript: Transcript, role: Role, update: JsonObject, options: FoldOptions): boolean {
  const content = update['content'];
  const id = update['messageId'];
  if (!isObject(content) || (id !== undefined && id !== null && typeof id !== 'string')) return false;
  const chunk = chunkRest(update);
  // An empty text says nothing; were it to open a message, a log that drops it would fold to something else.
  if (chunk === undefined && plainText(content) === '') return true;
  const last = transcript.entries.at(-1);
  let entry = last?.type === 'message' && last.role === role ? last : undefined;
  if (entry && typeof id === 'string') {
    if (entry.messageId === undefined) entry.messageId = id;
    else if (entry.messageId !== id) entry = undefined;
  }
  if (!entry) {
    entry = { type: 'message', role, ...(typeof id === 'string' && { messageId: id }), pieces: [], ...placed(options) };
    transcript.entries.push(entry);
  }
  append(entry.pieces, content, chunk);
  return true;
}

function foldToolCall(transcript: Transcript, update: JsonObject, options: FoldOptions): boolean {
  const toolCallId = update['toolCallId'];
  if (typeof toolCallId !== 'string') return false;
  const entry = entryAt(transcript, 'tool_call', toolCallId, (): ToolCallEntry => {
    return { type: 'tool_call', toolCallId, fields: {}, metas: [], ...placed(options) };
  });
  const rest = restOf(update, 'toolCallId');
  // Extensions stream through `_meta` (terminal output deltas), so none of them may replace another.
  if (isObject(rest['_meta'])) entry.metas.push(rest['_meta']);
  delete rest['_meta'];
  patch(entry.fields, rest, 'keep');
  return true;
}

function entityAt(transcript: Transcript, type: EntityEntry['type'], id: string, options: FoldOptions): EntityEntry {
  return entryAt(transcript, type, id, () => ({ type, id, fields: {}, pieces: [], ...placed(options) }));
}

function foldEntity(
  transcript: Transcript,
  type: EntityEntry['type'],
  idKey: string,
  piecesKey: string | undefined,
  update: JsonObject,
  options: FoldOptions,
): boolean {
  const id = update[idKey];
  if (typeof id !== 'string') return false;
  const entity = entityAt(transcript, type, id, options);
  const rest = restOf(update, idKey);
  if (piecesKey !== undefined && piecesKey in rest) {
    const blocks = rest[piecesKey];
    delete rest[piecesKey];
    entity.pieces.length = 0;
    if (Array.isArray(blocks)) for (const block of blocks) if (isObject(block)) append(entity.pieces, block, undefined);
  }
  patch(entity.fields, rest, 'clear');
  return true;
}

function foldEntityChunk(
  transcript: Transcript,
  type: EntityEntry['type'],
  idKey: string,
  update: JsonObject,
  options: FoldOptions,
): boolean {
  const id = update[idKey];
  const content = update['content'];
  if (typeof id !== 'string' || !isObject(content)) return false;
  const entity = entityAt(transcript, type, id, options);
  if (type === 'compaction') entity.fields['status'] ??= 'in_progress';
  append(entity.pieces, content, chunkRest(update, idKey));
  return true;
}

function entryAt<E extends ToolCallEntry | EntityEntry>(
  transcript: Transcript,
  type: E['type'],
  id: string,
  create: () => E,
): E {
  const key = `${type}:${id}`;
  const at = transcript.index[key];
  if (at !== undefined) return transcript.entries[at] as E;
  const made = create();
  transcript.index[key] = transcript.entries.length;
  transcript.entries.push(made);
  return made;
}

/** Adds a block; plain text joins plain text before it when both chunks carried the same `_meta` and nothing else. */
function append(pieces: Piece[], content: JsonObject, chunk: JsonObject | undefined): void {
  const text = plainText(content);
  const last = pieces.at(-1);
  if (text === undefined) {
    pieces.push(chunk ? { content, chunk } : { content });
    return;
  }
  const before = last && plainText(last.content);
  if (last && before !== undefined && joins(last.chunk, chunk)) {
    // This object was made below, for this transcript.
    (last.content as { text: string }).text = before + text;
    return;
  }
  if (text === '' && chunk === undefined) return;
  pieces.push(chunk ? { content: { type: 'text', text }, chunk } : { content: { type: 'text', text } });
}

function joins(a: JsonObject | undefined, b: JsonObject | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  const onlyMeta = Object.keys(b).length === 1 && b['_meta'] !== undefined;
  return onlyMeta && JSON.stringify(a) === JSON.stringify(b);
}

/** The text of a block that is nothing but text. */
function plainText(content: JsonObject): string | undefined {
  const text = content['text'];
  if (content['type'] !== 'text' || typeof text !== 'string') return undefined;
  for (const key in content) if (key !== 'type' && key !== 'text' && content[key] !== null) return undefined;
  return text;
}

/** What a chunk carries beside its block; undefined for nothing. */
function chunkRest(update: JsonObject, idKey = 'messageId'): JsonObject | undefined {
  let found = false;
  for (const key in update) if (key !== 'sessionUpdate' && key !== 'content' && key !== idKey) found = true;
  if (!found) return undefined;
  const rest = restOf(update, idKey);
  delete rest['content'];
  return Object.keys(rest).length === 0 ? undefined : rest;
}

/** The update's members without its kind, its id and what the sidecar added. An empty `_meta` is none. */
function restOf(update: JsonObject, idKey?: string): Record<string, unknown> {
  const rest: Record<string, unknown> = {};
  for (const key in update) {
    if (key === 'sessionUpdate' || key === idKey) continue;
    const value = key === '_meta' ? metaWithoutOurs(update[key]) : update[key];
    if (key !== '_meta' || value !== undefined) setOwn(rest, key, value);
  }
  return rest;
}

function metaWithoutOurs(meta: unknown): unknown {
  if (!isObject(meta)) return meta;
  const { sidecar: _sidecar, ...rest } = meta;
  return Object.keys(rest).length === 0 ? undefined : rest;
}

function withoutOurs(update: unknown): unknown {
  if (!isObject(update) || !isObject(update['_meta'])) return update;
  const { _meta, ...rest } = update;
  const meta = metaWithoutOurs(_meta);
  return meta === undefined ? rest : { ...rest, _meta: meta };
}

/** Sets members; null means "unchanged" (`keep`, tool calls of v1) or "no longer set" (`clear`). */
function patch(target: Record<string, unknown>, from: JsonObject, onNull: 'keep' | 'clear'): void {
  for (const key in from) {
    const value = from[key];
    if (value !== null) setOwn(target, key, value);
    else if (onNull === 'clear') delete target[key];
  }
}

/** `__proto__` is an ordinary key in JSON. */
function setOwn(target: Record<string, unknown>, key: string, value: unknown): void {
  if (key !== '__proto__') target[key] = value;
  else Object.defineProperty(target, key, { value, enumerable: true, configurable: true, writable: true });
}

function placed({ eventId }: FoldOptions): { eventId?: string } {
  return eventId === undefined ? {} : { eventId };
}
