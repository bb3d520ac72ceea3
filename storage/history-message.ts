/** What the chat history shows of a session: messages and tool calls with their final states, oldest to newest by seq. */
import type { JsonObject } from '../protocol/json-rpc.ts';
import type { Entry } from '../protocol/v1/transcript.ts';
import { settledId } from '../protocol/event-id.ts';

/** An entry of the transcript with the event that made it. */
export interface StoredEntry {
  readonly seq: number;
  /** Of that event, milliseconds since 1970. */
  readonly time: number;
  readonly turnId: string | undefined;
  readonly entry: Entry;
}

/**
 * One message as `_sidecar/history` and `acp-sidecar history --json` give it. `eventId` is that of the event that began
 * it; later events may have changed it since. By `type`:
 * - `message`: `role` user, agent or thought, `content` ACP content blocks, neighbouring text joined
 * - `tool_call`: `toolCallId` and the last value of each field (`title`, `status`, `content`, ...), `metas` when its
 *   updates carried `_meta`
 * - `compaction`, `subagent`, `session_message`: `id`, the last value of each field, `content`
 */
export interface HistoryMessage {
  readonly eventId: string;
  /** ISO 8601. */
  readonly time: string;
  readonly turnId?: string;
  readonly type: Entry['type'];
  readonly [member: string]: unknown;
}

export function historyMessage(logId: string, stored: StoredEntry): HistoryMessage {
  const { seq, time, turnId, entry } = stored;
  const head = {
    eventId: settledId(logId, seq),
    time: new Date(time).toISOString(),
    ...(turnId !== undefined && { turnId }),
  };
  switch (entry.type) {
    case 'message': {
      const { type, role, messageId, pieces } = entry;
      return { ...head, type, role, ...(messageId !== undefined && { messageId }), content: contentOf(pieces) };
    }
    case 'tool_call': {
      const { type, toolCallId, fields, metas } = entry;
      return { ...fields, ...head, type, toolCallId, ...(metas.length > 0 && { metas }) };
    }
    case 'compaction':
    case 'subagent':
    case 'session_message': {
      const { type, id, fields, pieces } = entry;
      return { ...fields, ...head, type, id, ...(pieces.length > 0 && { content: contentOf(pieces) }) };
    }
  }
}

function contentOf(pieces: readonly { readonly content: JsonObject }[]): JsonObject[] {
  return pieces.map(({ content }) => content);
}
