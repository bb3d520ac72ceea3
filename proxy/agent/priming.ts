/**
 * The earlier conversation as one text block, for an agent session that does not have it. Newest first until the bound,
 * told in the order in which it happened, and marked as what it is.
 */
import { isObject } from '../../protocol/json-rpc.ts';
import type { HistoryMessage } from '../../storage/history-message.ts';

/** Bytes of conversation that an agent is given at most. */
export const PRIMER_BYTES = 64 * 1024;

/** What stock clients are shown when the context is not the agent's own. */
export const PRIMED_NOTE =
  '[The agent could not take up this session where it was. It goes on in a new agent session, which was given the earlier conversation as text.]\n\n';

const HEAD =
  'What follows is the earlier conversation of this session, given to you as text because you do not have it any more. ' +
  'It is context, not a new request: do not answer it and do not repeat its actions. The next message is the request.';
const LEFT_OUT = '[The beginning of the conversation is left out.]';
const CUT = '[...]';

/**
 * @param newestFirst messages of the history
 * @param complete false when there are older ones
 * @returns undefined when there is nothing to tell
 */
export function primerText(
  newestFirst: readonly HistoryMessage[],
  complete: boolean,
  maxBytes: number = PRIMER_BYTES,
): string | undefined {
  const told: string[] = [];
  let left = maxBytes;
  let whole = complete;
  for (const message of newestFirst) {
    const text = messageText(message);
    if (text === undefined) continue;
    const bytes = Buffer.byteLength(text) + 2;
    if (bytes > left) {
      // Half of the newest message says more than nothing of it.
      if (told.length === 0) told.push(`${CUT}${Buffer.from(text).subarray(-left).toString().replace(/^�+/, '')}`);
      whole = false;
      break;
    }
    told.push(text);
    left -= bytes;
  }
  if (told.length === 0) return undefined;
  const conversation = [...(whole ? [] : [LEFT_OUT]), ...told.toReversed()].join('\n\n');
  return `${HEAD}\n\n<earlier-conversation>\n${conversation}\n</earlier-conversation>\n\n`;
}

function messageText(message: HistoryMessage): string | undefined {
  if (message.type === 'message') {
    if (message['role'] === 'thought') return undefined;
    const text = blocksText(message['content']);
    return text === '' ? undefined : `${message['role'] === 'user' ? 'User' : 'Assistant'}: ${text}`;
  }
  if (message.type === 'tool_call') {
    const title = typeof message['title'] === 'string' ? message['title'] : message['toolCallId'];
    const status = typeof message['status'] === 'string' ? message['status'] : 'pending';
    return `Tool call: ${String(title)} (${status})`;
  }
  return undefined;
}

function blocksText(content: unknown): string {
  if (!Array.isArray(content)) return '';
  return content
    .map((block: unknown) => {
      if (!isObject(block)) return '';
      return typeof block['text'] === 'string' ? block['text'] : `[${String(block['type'])}]`;
    })
    .join('')
    .trim();
}
