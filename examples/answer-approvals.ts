/**
 * Answers what agents ask, from a terminal: lists everything that waits, over all sessions, and asks you. It is a client
 * like any other, attached beside the editors; whoever answers first decides.
 *
 *   node dist/examples/answer-approvals.js ws://127.0.0.1:7777/acp     (a token in ACP_SIDECAR_TOKEN)
 *
 * Without an address it shows itself: a sidecar, the example agent, and a prompt whose client does not answer.
 * Exits 0 when the question was answered and the turn went on, 1 otherwise.
 */
import { createInterface } from 'node:readline';
import {
  client,
  type PromptResponse,
  type RequestPermissionRequest,
  type RequestPermissionResponse,
} from '@agentclientprotocol/sdk';
import { resumableStream } from 'acp-sidecar/client';
import { runExample, startSidecar } from './sidecar-process.ts';

interface Waiting {
  readonly approvals: readonly { readonly sessionId: string; readonly method: string }[];
}

const LOOK_EVERY_MS = 500;
const OPT_IN = { version: 1, name: 'answers from a terminal' };

const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function ask(params: RequestPermissionRequest): Promise<RequestPermissionResponse> {
  const { sessionId, toolCall, options } = params;
  process.stdout.write(`\nsession ${sessionId} asks: ${toolCall.title ?? toolCall.toolCallId}\n`);
  if (toolCall.rawInput !== undefined) process.stdout.write(`  ${JSON.stringify(toolCall.rawInput)}\n`);
  for (const [i, { name, kind }] of options.entries()) process.stdout.write(`  ${i + 1}  ${name} (${kind})\n`);
  for (;;) {
    process.stdout.write('your answer: ');
    const { value, done } = await answers.next();
    if (done) throw new Error('nobody answers any more');
    const option = options[Number(value) - 1];
    if (option) return { outcome: { outcome: 'selected', optionId: option.optionId } };
  }
}

/** Attaches to every session in which something waits; its cards then come by themselves. */
async function answerAll(url: string, answered: () => void): Promise<never> {
  const token = process.env['ACP_SIDECAR_TOKEN'];
  const { agent } = client({ name: 'terminal' })
    .onNotification('session/update', () => undefined)
    .onRequest('session/request_permission', async ({ params }) => {
      const answer = await ask(params);
      answered();
      return answer;
    })
    .connect(resumableStream({ url, ...(token === undefined ? {} : { token }) }));
  await agent.request('initialize', { protocolVersion: 1, clientCapabilities: { _meta: { sidecar: OPT_IN } } });
  const attached = new Set<string>();
  for (;;) {
    const { approvals } = await agent.request<Waiting>('_sidecar/approvals', {});
    for (const { sessionId } of approvals) {
      if (attached.has(sessionId)) continue;
      attached.add(sessionId);
      await agent.request('session/resume', { sessionId, cwd: process.cwd(), mcpServers: [] });
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
  }
}

async function show(): Promise<boolean> {
  const sidecar = await startSidecar();
  let tool = '';
  const busy = client({ name: 'looks away' })
    .onNotification('session/update', ({ params: { update } }) => {
      if (update.sessionUpdate === 'tool_call_update') tool = update.status ?? tool;
    })
    .onRequest('session/request_permission', () => new Promise<never>(() => undefined))
    .connect(resumableStream({ url: sidecar.url }));
  await busy.agent.request('initialize', { protocolVersion: 1, clientCapabilities: {} });
  const { sessionId } = await busy.agent.request('session/new', { cwd: process.cwd(), mcpServers: [] });
  let given = 0;
  answerAll(sidecar.url, () => given++).catch(() => undefined);
  const prompt = [{ type: 'text' as const, text: 'use the tool' }];
  const { stopReason } = await busy.agent.request<PromptResponse>('session/prompt', { sessionId, prompt });
  process.stdout.write(`\nthe turn ended with ${stopReason}, the tool is ${tool}\n`);
  await sidecar.stop();
  return given === 1 && tool === 'completed';
}

const [url] = process.argv.slice(2);
if (url === undefined) {
  await runExample(show);
  process.exit();
} else await answerAll(url, () => undefined);
