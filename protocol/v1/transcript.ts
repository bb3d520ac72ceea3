/**
 * A transcript: what a session's updates amount to. JSON-serialisable, so that a history cache can keep it beside
 * `lastSeq` and `REDUCER_VERSION`.
 *
 * `entries` stand in the order in which they first appeared, and keep their place. Everything of which only the last
 * value counts (plans, mode, options, commands, usage, info) stands beside them.
 */
import type { JsonObject } from '../json-rpc.ts';

/** Counts up whenever the same updates fold to something else; a cache of another version is rebuilt. */
export const REDUCER_VERSION = 1;

/**
 * One content block. Neighbouring plain text is one piece, however it was chunked. `chunk` holds what else the chunk
 * carried (`_meta` and fields that we do not know).
 */
export interface Piece {
  readonly content: JsonObject;
  readonly chunk?: JsonObject;
}

interface Placed {
  /** The event id of the update that made the entry, when the fold was told it. */
  readonly eventId?: string;
}

export type Role = 'user' | 'agent' | 'thought';

/** Text and blocks of one message. A message that a tool call interrupts goes on in a second entry of the same id. */
export interface MessageEntry extends Placed {
  readonly type: 'message';
  readonly role: Role;
  messageId?: string;
  readonly pieces: Piece[];
}

/** `fields` are the call's members, each the last one that was not null. `metas` are its updates' `_meta`, in order. */
export interface ToolCallEntry extends Placed {
  readonly type: 'tool_call';
  readonly toolCallId: string;
  readonly fields: Record<string, unknown>;
  readonly metas: JsonObject[];
}

/** Entities that are patched by id: null clears a field. `pieces` is a compaction's summary or a message's content. */
export interface EntityEntry extends Placed {
  readonly type: 'compaction' | 'subagent' | 'session_message';
  readonly id: string;
  readonly fields: Record<string, unknown>;
  readonly pieces: Piece[];
}

export type Entry = MessageEntry | ToolCallEntry | EntityEntry;

export interface Transcript {
  readonly version: typeof REDUCER_VERSION;
  readonly entries: Entry[];
  /** `<entry type>:<id>` to the place in `entries`. */
  readonly index: Record<string, number>;
  plan?: JsonObject;
  /** `plan_update`s by `planId`. */
  readonly plans: Record<string, JsonObject>;
  mode?: string;
  configOptions?: readonly unknown[];
  commands?: readonly unknown[];
  usage?: JsonObject;
  readonly info: Record<string, unknown>;
  /** Updates that this version does not know, and how many entries stood before each. */
  readonly unknown: { readonly at: number; readonly update: unknown }[];
}

export function emptyTranscript(): Transcript {
  return { version: REDUCER_VERSION, entries: [], index: {}, plans: {}, info: {}, unknown: [] };
}

/** The text of an entry's plain and annotated text blocks; other blocks are left out. */
export function textOfPieces(pieces: readonly Piece[]): string {
  let text = '';
  for (const { content } of pieces) if (typeof content['text'] === 'string') text += content['text'];
  return text;
}
