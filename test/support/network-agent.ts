/**
 * The agent of the network tests, a program. A prompt's first text block is `{"label","chunks","everyMs","askEvery"}`: it
 * says `<label><i>;` for each i, runs a tool after every tenth chunk, asks for permission before every `askEvery`th
 * tool, and reads a file of the client for the others. Each prompt that reaches it is written to the file that NETWORK_AGENT_RUNS names, one label a line.
 */
import { appendFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

export interface NetworkOrder {
  readonly label: string;
  readonly chunks: number;
  readonly everyMs: number;
  /** Every how many tools; 0: never. */
  readonly askEvery: number;
}

interface Incoming {
  readonly id?: number | string;
  readonly method?: string;
  readonly params?: { readonly sessionId?: string; readonly prompt?: readonly { readonly text?: string }[] };
  readonly result?: unknown;
  readonly error?: unknown;
}

const TOOL_EVERY = 10;
const waiting = new Map<string, (answer: unknown) => void>();
let sessions = 0;
let asked = 0;

function send(message: object): void {
  process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
}

function update(sessionId: string, body: object): void {
  send({ method: 'session/update', params: { sessionId, update: body } });
}

function request(method: string, params: object): Promise<unknown> {
  const id = `ask-${process.pid}-${++asked}`;
  send({ id, method, params });
  return new Promise((resolve) => waiting.set(id, resolve));
}

function ask(sessionId: string, toolCallId: string): Promise<unknown> {
  const options = [
    { optionId: 'yes', name: 'Yes', kind: 'allow_once' },
    { optionId: 'no', name: 'No', kind: 'reject_once' },
  ];
  return request('session/request_permission', { sessionId, toolCall: { toolCallId }, options });
}

function read(sessionId: string, name: string): Promise<unknown> {
  return request('fs/read_text_file', { sessionId, path: `/${name}` });
}

async function run(id: unknown, sessionId: string, order: NetworkOrder): Promise<void> {
  const { label, chunks, everyMs, askEvery } = order;
  const runs = process.env['NETWORK_AGENT_RUNS'];
  if (runs !== undefined) appendFileSync(runs, `${label}\n`);
  for (let i = 0; i < chunks; i++) {
    const content = { type: 'text', text: `${label}${i};` };
    update(sessionId, { sessionUpdate: 'agent_message_chunk', messageId: label, content });
    if (i % TOOL_EVERY === TOOL_EVERY - 1) {
      const tool = (i + 1) / TOOL_EVERY;
      const toolCallId = `${label}tool${tool}`;
      update(sessionId, { sessionUpdate: 'tool_call', toolCallId, title: toolCallId, status: 'pending' });
      const asks = askEvery > 0 && tool % askEvery === 0;
      const answer = asks ? await ask(sessionId, toolCallId) : await read(sessionId, toolCallId);
      const rawOutput = { answer };
      update(sessionId, { sessionUpdate: 'tool_call_update', toolCallId, status: 'completed', rawOutput });
    }
    await sleep(everyMs);
  }
  send({ id, result: { stopReason: 'end_turn' } });
}

createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params, result, error } = JSON.parse(line) as Incoming;
  const sessionId = params?.sessionId ?? '';
  if (method === undefined) {
    waiting.get(String(id))?.(result ?? error);
    waiting.delete(String(id));
  } else if (method === 'initialize') {
    const agentCapabilities = { loadSession: false, sessionCapabilities: { resume: {} } };
    send({ id, result: { protocolVersion: 1, agentCapabilities } });
  } else if (method === 'session/new') {
    send({ id, result: { sessionId: `net-${process.pid}-${++sessions}` } });
  } else if (method === 'session/resume') send({ id, result: {} });
  else if (method === 'session/prompt') {
    void run(id, sessionId, JSON.parse(params?.prompt?.[0]?.text ?? '{}') as NetworkOrder);
  } else if (id !== undefined) send({ id, error: { code: -32601, message: `Method not found: ${method}` } });
});
process.stdin.on('end', () => process.exit(0));
