/** Two clients that are told nothing of the network: one behind `acp-sidecar connect`, one of the ACP SDK on a stream. */
import { client } from '@agentclientprotocol/sdk';
import { resumableStream } from '../../proxy/client/node.ts';
import { at, type Message, textAt } from './json.ts';
import { RawClient } from './raw-client.ts';
import type { Scope } from './scope.ts';
import { SIDECAR_PROGRAM } from './sidecar.ts';

export interface NetworkClient {
  readonly name: string;
  /** How often each tool call's approval was shown. */
  readonly cards: Map<string, number>;
  /** How often each file was read. */
  readonly reads: Map<string, number>;
  /** `session/update`s that came, params. */
  readonly updates: { readonly params: Record<string, unknown> }[];
  newSession(): Promise<string>;
  /** Resolves to the result or the error. */
  prompt(sessionId: string, text: string): Promise<{ readonly result?: unknown; readonly error?: unknown }>;
}

/** How long a person looks at a question. */
type Think = () => Promise<void>;

function count(counts: Map<string, number>, id: string): void {
  counts.set(id, (counts.get(id) ?? 0) + 1);
}

const YES = { outcome: { outcome: 'selected' as const, optionId: 'yes' } };

export async function connectClient(scope: Scope, args: readonly string[], think: Think): Promise<NetworkClient> {
  const raw = RawClient.direct(scope, [process.execPath, SIDECAR_PROGRAM, ...args]);
  const cards = new Map<string, number>();
  const reads = new Map<string, number>();
  const updates: { params: Record<string, unknown> }[] = [];
  raw.onReceived = ({ message }: { message: Message }) => {
    if (message.method === 'session/update' && message.params) updates.push({ params: message.params });
  };
  raw.handlers.set('session/request_permission', async (params) => {
    count(cards, textAt(params, 'toolCall', 'toolCallId'));
    await think();
    return YES;
  });
  raw.handlers.set('fs/read_text_file', async ({ path }) => {
    count(reads, String(path));
    await think();
    return { content: `content of ${String(path)}` };
  });
  await raw.initialize();
  return {
    name: args[0] ?? '',
    cards,
    reads,
    updates,
    newSession: () => raw.newSession(),
    prompt: async (sessionId, text) => {
      const id = `prompt ${text}`;
      raw.sendMessage({ id, method: 'session/prompt', params: { sessionId, prompt: [{ type: 'text', text }] } });
      const { message } = await raw.until(`the answer to ${text}`, (entry) => entry.message.id === id, {
        timeoutMs: 90_000,
      });
      return { result: message.result, error: message.error };
    },
  };
}

export async function streamClient(scope: Scope, url: string, think: Think): Promise<NetworkClient> {
  const cards = new Map<string, number>();
  const reads = new Map<string, number>();
  const updates: { params: Record<string, unknown> }[] = [];
  const times = { heartbeatMs: 200, firstBackoffMs: 10, longestBackoffMs: 100 };
  const stream = resumableStream({ url, ...times });
  const connection = client({ name: 'on-a-stream' })
    .onNotification('session/update', ({ params }) => {
      updates.push({ params: { ...params } });
    })
    .onRequest('session/request_permission', async ({ params }) => {
      count(cards, textAt(params, 'toolCall', 'toolCallId'));
      await think();
      return YES;
    })
    .onRequest('fs/read_text_file', async ({ params: { path } }) => {
      count(reads, path);
      await think();
      return { content: `content of ${path}` };
    })
    .connect(stream);
  scope.defer(() => stream.close());
  const { agent } = connection;
  await agent.request('initialize', { protocolVersion: 1, clientCapabilities: { fs: { readTextFile: true } } });
  return {
    name: 'resumableStream',
    cards,
    reads,
    updates,
    newSession: async () => (await agent.request('session/new', { cwd: '/tmp', mcpServers: [] })).sessionId,
    prompt: async (sessionId, text) => {
      try {
        return { result: await agent.request('session/prompt', { sessionId, prompt: [{ type: 'text', text }] }) };
      } catch (error) {
        return { error };
      }
    },
  };
}

/** The updates of a session that are not the user's, without what belongs to the envelope. */
export function toldBy(
  updates: readonly { readonly params: Record<string, unknown> }[],
  sessionId: string,
): Record<string, unknown>[] {
  return updates.flatMap(({ params }) => {
    const update = params['update'] as Record<string, unknown>;
    return params['sessionId'] === sessionId && at(update, 'sessionUpdate') !== 'user_message_chunk' ? [update] : [];
  });
}
