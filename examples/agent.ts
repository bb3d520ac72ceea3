/**
 * A small ACP agent on stdio, made with the ACP SDK, for trying things without a model. It answers word by word. With
 * "tool" in the prompt it also thinks, plans, and asks for permission to run a tool. It keeps nothing and cannot load
 * sessions: the sidecar does that for it.
 *
 *   EXAMPLE_AGENT_WORD_MS   pause after each word, default 20
 */
import { randomUUID } from 'node:crypto';
import { Readable, Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  type AgentContext,
  agent,
  type ContentBlock,
  ndJsonStream,
  type PromptResponse,
  PROTOCOL_VERSION,
  RequestError,
  type RequestPermissionRequest,
  type SessionUpdate,
} from '@agentclientprotocol/sdk';
import { ANSWER } from './answer.ts';

const wordMs = Number(process.env['EXAMPLE_AGENT_WORD_MS'] ?? 20);
/** The running turn of each session; aborting it is a cancel. */
const sessions = new Map<string, AbortController | undefined>();

interface Turn {
  readonly client: AgentContext;
  readonly sessionId: string;
  readonly signal: AbortSignal;
}

function send(turn: Turn, update: SessionUpdate): Promise<void> {
  return turn.client.notify('session/update', { sessionId: turn.sessionId, update });
}

/** Says a text word by word. */
async function say(turn: Turn, kind: 'agent_message_chunk' | 'agent_thought_chunk', text: string): Promise<void> {
  const messageId = randomUUID();
  for (const word of text.match(/\S+\s*/g) ?? []) {
    await send(turn, { sessionUpdate: kind, messageId, content: { type: 'text', text: word } });
    await sleep(wordMs, undefined, { signal: turn.signal });
  }
}

async function plan(turn: Turn, status: 'in_progress' | 'completed'): Promise<void> {
  const entries = [
    { content: 'Look at the clock', priority: 'high' as const, status },
    { content: 'Answer', priority: 'medium' as const, status: 'pending' as const },
  ];
  await send(turn, { sessionUpdate: 'plan', entries });
}

/** A tool call that waits for somebody's permission. */
async function useTool(turn: Turn): Promise<void> {
  await say(turn, 'agent_thought_chunk', 'The clock tells the time; I should ask before I look at it.');
  await plan(turn, 'in_progress');
  const toolCallId = randomUUID();
  const call = { toolCallId, title: 'Look at the clock', kind: 'execute' as const, rawInput: { command: 'date' } };
  await send(turn, { sessionUpdate: 'tool_call', ...call, status: 'pending' });
  const question: RequestPermissionRequest = {
    sessionId: turn.sessionId,
    toolCall: call,
    options: [
      { optionId: 'yes', name: 'Allow', kind: 'allow_once' },
      { optionId: 'no', name: 'Reject', kind: 'reject_once' },
    ],
  };
  const { outcome } = await turn.client.request('session/request_permission', question, {
    cancellationSignal: turn.signal,
  });
  if (outcome.outcome === 'selected' && outcome.optionId === 'yes') {
    await send(turn, { sessionUpdate: 'tool_call_update', toolCallId, status: 'in_progress' });
    await sleep(wordMs, undefined, { signal: turn.signal });
    const content = [{ type: 'content' as const, content: { type: 'text' as const, text: new Date().toISOString() } }];
    await send(turn, { sessionUpdate: 'tool_call_update', toolCallId, status: 'completed', content });
  } else {
    await send(turn, { sessionUpdate: 'tool_call_update', toolCallId, status: 'failed' });
  }
  await plan(turn, 'completed');
}

function textOf(prompt: readonly ContentBlock[]): string {
  return prompt.map((block) => (block.type === 'text' ? block.text : '')).join(' ');
}

async function runTurn(turn: Turn, prompt: readonly ContentBlock[]): Promise<PromptResponse> {
  try {
    if (/\btool\b/i.test(textOf(prompt))) await useTool(turn);
    await say(turn, 'agent_message_chunk', ANSWER);
    return { stopReason: 'end_turn' };
  } catch (error) {
    if (turn.signal.aborted) return { stopReason: 'cancelled' };
    throw error;
  }
}

const connection = agent({ name: 'example-agent' })
  .onRequest('initialize', () => ({
    protocolVersion: PROTOCOL_VERSION,
    agentInfo: { name: 'example-agent', version: '1.0.0' },
    agentCapabilities: { loadSession: false },
    authMethods: [],
  }))
  .onRequest('session/new', () => {
    const sessionId = randomUUID();
    sessions.set(sessionId, undefined);
    return { sessionId };
  })
  .onRequest('session/prompt', async ({ params, client, signal }) => {
    if (!sessions.has(params.sessionId)) throw RequestError.resourceNotFound(params.sessionId);
    if (sessions.get(params.sessionId)) throw RequestError.invalidRequest('a turn is running in this session');
    const cancel = new AbortController();
    sessions.set(params.sessionId, cancel);
    try {
      const either = AbortSignal.any([signal, cancel.signal]);
      return await runTurn({ client, sessionId: params.sessionId, signal: either }, params.prompt);
    } finally {
      sessions.set(params.sessionId, undefined);
    }
  })
  .onNotification('session/cancel', ({ params }) => {
    sessions.get(params.sessionId)?.abort();
  })
  .connect(
    ndJsonStream(
      Writable.toWeb(process.stdout) as WritableStream<Uint8Array>,
      Readable.toWeb(process.stdin) as ReadableStream<Uint8Array>,
    ),
  );

await connection.closed;
