/**
 * What a session tells, as a list: updates in order, with neighbouring text chunks of one message joined (a sidecar may
 * join them, never reorder them). Two stories are equal when nothing was lost, repeated or reordered.
 */
import { at, type Message, updateOf } from './json.ts';

/** An update as it is told: without what belongs to the envelope. */
export type Told = Readonly<Record<string, unknown>>;

function textOf(update: Told): string | undefined {
  const text = at(update, 'content', 'text');
  const kind = update['sessionUpdate'];
  return typeof kind === 'string' && kind.endsWith('_chunk') && typeof text === 'string' ? text : undefined;
}

function shape(update: Told): string {
  return JSON.stringify({ ...update, content: { ...(update['content'] as object), text: '' } });
}

export function storyOf(updates: readonly Told[]): Told[] {
  const story: Told[] = [];
  for (const update of updates) {
    const before = story.at(-1);
    const text = textOf(update);
    const joined = before && textOf(before);
    // A prompt's blocks are blocks: two of the user's are never one.
    const mergeable = update['sessionUpdate'] !== 'user_message_chunk';
    if (before && text !== undefined && joined !== undefined && mergeable && shape(before) === shape(update)) {
      story[story.length - 1] = { ...before, content: { ...(before['content'] as object), text: joined + text } };
    } else story.push(update);
  }
  return story;
}

/** The chunks that replays show for a prompt. */
export function promptChunks(blocks: readonly unknown[], turnId: string): Told[] {
  return blocks.map((content) => ({ sessionUpdate: 'user_message_chunk', content, messageId: turnId }));
}

/**
 * What a client that opted in has been told of a session: its updates, and its own prompts where their turns began
 * (their sender gets no echo, but the turn's notification).
 */
export function toldTo(
  messages: readonly { readonly message: Message }[],
  sessionId: string,
  ownPrompts: ReadonlyMap<string, readonly unknown[]> = new Map(),
): Told[] {
  const told: Told[] = [];
  for (const { message } of messages) {
    if (at(message, 'params', 'sessionId') !== sessionId) continue;
    const update = updateOf(message);
    if (update) told.push(update);
    else if (message.method === '_sidecar/turn' && at(message, 'params', 'state') === 'running') {
      const prompt = ownPrompts.get(String(at(message, 'params', 'promptId')));
      if (prompt) told.push(...promptChunks(prompt, String(at(message, 'params', 'turnId'))));
    }
  }
  return told;
}
