/**
 * What an update is to the log (DESIGN, "A run is the next event"). Drop only what is provably redundant; anything not
 * understood is an event, verbatim.
 *
 *   text      a plain text chunk: may be joined to its neighbours
 *   progress  a patch of a tool call that changes no status: merged into the call's pending patch
 *   tool      a tool call, or a patch that is an event
 *   snapshot  state of which only the last value counts: transient when equal to the last one
 *   transient delivered live, never written
 *   event     everything else
 */
import { type JsonObject, isObject } from '../json-rpc.ts';
import { type Member, member, members } from '../wire-text.ts';
import { TEXT_KINDS, UPDATE_KINDS, updateKindCode } from './update-kinds.ts';

export type Classified =
  | {
      readonly class: 'text';
      readonly kind: number;
      /** Chunks with equal keys that stand next to each other are one run. */
      readonly key: string;
      /** Span of the JSON string's body (without quotes) in the update's text. */
      readonly bodyStart: number;
      readonly bodyEnd: number;
    }
  | {
      readonly class: 'progress' | 'tool';
      readonly kind: number;
      readonly toolCallId: string;
      readonly status: string | undefined;
      /** The patched fields, wire text by name; null means unchanged and is left out. Empty for `tool`. */
      readonly fields: ReadonlyMap<string, string>;
    }
  | { readonly class: 'snapshot' | 'transient' | 'event'; readonly kind: number };

const SNAPSHOT_KINDS = new Set<number>([
  UPDATE_KINDS.available_commands_update,
  UPDATE_KINDS.current_mode_update,
  UPDATE_KINDS.config_option_update,
  UPDATE_KINDS.session_info_update,
]);
const PATCH_FIELDS = new Set(['title', 'name', 'kind', 'status', 'content', 'locations', 'rawInput', 'rawOutput']);

/**
 * @param wire text of the `update` object
 * @param update the same, parsed
 */
export function classifyUpdate(wire: string, update: JsonObject): Classified {
  const kind = updateKindCode(update['sessionUpdate']);
  if (TEXT_KINDS.has(kind)) return classifyText(wire, update, kind) ?? { class: 'event', kind };
  if (kind === UPDATE_KINDS.tool_call || kind === UPDATE_KINDS.tool_call_update) {
    return classifyTool(wire, update, kind);
  }
  if (SNAPSHOT_KINDS.has(kind)) return { class: 'snapshot', kind };
  if (kind === UPDATE_KINDS.notice) return { class: 'transient', kind };
  return { class: 'event', kind };
}

function onlyKnown(list: readonly Member[], known: readonly string[]): boolean {
  return (
    new Set(list.map((entry) => entry.key)).size === list.length && list.every((entry) => known.includes(entry.key))
  );
}

function classifyText(wire: string, update: JsonObject, kind: number): Classified | undefined {
  const content = update['content'];
  if (!isObject(content) || content['type'] !== 'text' || typeof content['text'] !== 'string') return undefined;
  const list = members(wire);
  if (!onlyKnown(list, ['sessionUpdate', 'content', 'messageId', '_meta'])) return undefined;
  const inner = members(wire, member(list, 'content')?.valueStart);
  if (!onlyKnown(inner, ['type', 'text'])) return undefined;
  const messageId = update['messageId'];
  if (messageId !== undefined && messageId !== null && typeof messageId !== 'string') return undefined;
  const text = member(inner, 'text') as Member;
  const raw = (key: string): string => {
    const found = member(list, key);
    return found ? wire.slice(found.valueStart, found.valueEnd) : '';
  };
  return {
    class: 'text',
    kind,
    // null and absent are the same message id (ACP message-id RFD)
    key: `${kind} ${typeof messageId === 'string' ? JSON.stringify(messageId) : ''} ${raw('_meta')}`,
    bodyStart: text.valueStart + 1,
    bodyEnd: text.valueEnd - 1,
  };
}

function classifyTool(wire: string, update: JsonObject, kind: number): Classified {
  const toolCallId = update['toolCallId'];
  if (typeof toolCallId !== 'string') return { class: 'event', kind };
  const status = typeof update['status'] === 'string' ? update['status'] : undefined;
  const whole: Classified = { class: 'tool', kind, toolCallId, status, fields: new Map() };
  if (kind === UPDATE_KINDS.tool_call) return whole;
  const list = members(wire);
  if (!onlyKnown(list, ['sessionUpdate', 'toolCallId', ...PATCH_FIELDS])) return whole;
  if (update['status'] !== undefined && update['status'] !== null && status === undefined) return whole;
  const fields = new Map<string, string>();
  for (const entry of list) {
    if (PATCH_FIELDS.has(entry.key) && update[entry.key] !== null) {
      fields.set(entry.key, wire.slice(entry.valueStart, entry.valueEnd));
    }
  }
  return { class: 'progress', kind, toolCallId, status, fields };
}
