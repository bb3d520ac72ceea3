/**
 * The standalone agent for load, fuzz and crash tests. A prompt's last text block is its order, JSON:
 * `{"label":"a","chunks":1000,"toolEvery":50,"batch":64,"everyMs":0,"thoughts":false}`. It streams chunks whose text is
 * `<label><i>;` with i counting up, so that a lost, repeated or reordered character shows, and a tool call with its
 * completion after each `toolEvery` chunks. With `everyMs` it pauses after each batch.
 */
import { randomUUID } from 'node:crypto';
import type { StreamOrder } from './stream-order.ts';

interface Request {
  id?: unknown;
  method?: string;
  params?: { sessionId?: string; prompt?: { text?: string }[] };
}

const cancelled = new Set<string>();

function write(text: string): Promise<void> | undefined {
  if (process.stdout.write(text)) return undefined;
  return new Promise((resolve) => process.stdout.once('drain', () => resolve()));
}

function send(message: object): Promise<void> | undefined {
  return write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
}

function update(sessionId: string, body: object): string {
  return `${JSON.stringify({ jsonrpc: '2.0', method: 'session/update', params: { sessionId, update: body } })}\n`;
}

async function stream(id: unknown, sessionId: string, order: StreamOrder): Promise<void> {
  const { label, chunks, toolEvery = 0, batch = 64, everyMs = 0 } = order;
  let out = '';
  for (let i = 0; i < chunks && !cancelled.has(sessionId); i++) {
    out += update(sessionId, {
      sessionUpdate: 'agent_message_chunk',
      content: { type: 'text', text: `${label}${i};` },
    });
    if (toolEvery > 0 && i % toolEvery === toolEvery - 1) {
      const toolCallId = `${label}-tool-${i}`;
      out += update(sessionId, { sessionUpdate: 'tool_call', toolCallId, title: `Tool ${i}`, status: 'in_progress' });
      out += update(sessionId, { sessionUpdate: 'tool_call_update', toolCallId, status: 'completed' });
    }
    if (i % batch === batch - 1) {
      await write(out);
      out = '';
      if (everyMs > 0) await new Promise((resolve) => setTimeout(resolve, everyMs));
      else if (i % (batch * 16) === batch * 16 - 1) await new Promise((resolve) => setImmediate(resolve));
    }
  }
  await write(out);
  await send({ id, result: { stopReason: cancelled.delete(sessionId) ? 'cancelled' : 'end_turn' } });
}

function answer(request: Request): void {
  const { id, method, params = {} } = request;
  const sessionId = params.sessionId ?? '';
  const reply = (result: object): void => void send({ id, result });
  switch (method) {
    case 'initialize':
      reply({ protocolVersion: 1, agentCapabilities: { loadSession: false, sessionCapabilities: { resume: {} } } });
      break;
    case 'session/new':
      reply({ sessionId: randomUUID() });
      break;
    case 'session/resume':
      reply({});
      break;
    case 'session/prompt':
      cancelled.delete(sessionId);
      void stream(id, sessionId, JSON.parse(params.prompt?.at(-1)?.text ?? '') as StreamOrder);
      break;
    case 'session/cancel':
      cancelled.add(sessionId);
      break;
    default:
      if (id !== undefined && method !== undefined) {
        void send({ id, error: { code: -32601, message: `Method not found: ${method}` } });
      }
  }
}

export function runStreamAgent(): void {
  let rest = '';
  process.stdin.setEncoding('utf8');
  process.stdin.on('data', (text: string) => {
    const lines = (rest + text).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) if (line.trim() !== '') answer(JSON.parse(line) as Request);
  });
  process.stdin.on('end', () => process.exit(0));
}
