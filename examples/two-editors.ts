/**
 * Two editors on one session. Each starts what its configuration names, `acp-sidecar run -- <agent>`, and talks ACP on
 * stdio with it, as with any agent. The first prompts; the second finds the session in its list, loads it, answers the
 * agent's question, and sees the same as the first. Then both are closed, and the daemon leaves.
 *
 * Exits 0 when both saw every word once, 1 otherwise.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable, Writable } from 'node:stream';
import { client, ndJsonStream, type PromptResponse } from '@agentclientprotocol/sdk';
import { ANSWER } from './answer.ts';
import { AGENT, runExample, SIDECAR } from './sidecar-process.ts';

const dir = mkdtempSync(join(tmpdir(), 'acp-sidecar-example-'));
const ENV = { ...process.env, XDG_STATE_HOME: join(dir, 'state'), XDG_RUNTIME_DIR: join(dir, 'run') };

/** An editor: its text so far, and the connection to what it takes for its agent. */
function editor(name: string, answers: boolean) {
  const args = [SIDECAR, 'run', '--idle-exit', '500ms', '--', ...AGENT];
  const child = spawn(process.execPath, args, { env: ENV, stdio: ['pipe', 'pipe', 'inherit'] });
  const stream = ndJsonStream(
    Writable.toWeb(child.stdin) as WritableStream<Uint8Array>,
    Readable.toWeb(child.stdout) as ReadableStream<Uint8Array>,
  );
  const seen = { text: '', questions: 0 };
  const { agent } = client({ name })
    .onNotification('session/update', ({ params: { update } }) => {
      if (update.sessionUpdate === 'agent_message_chunk' && update.content.type === 'text')
        seen.text += update.content.text;
    })
    .onRequest('session/request_permission', ({ params, signal }) => {
      seen.questions++;
      const optionId = params.options[0]?.optionId ?? '';
      if (answers) return { outcome: { outcome: 'selected', optionId } };
      // The other editor answers; this card is taken back.
      return new Promise((_resolve, reject) => {
        signal.addEventListener('abort', () => reject(new Error('withdrawn')));
      });
    })
    .connect(stream);
  const closed = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const close = async (): Promise<void> => {
    child.stdin.end();
    await closed;
  };
  return { agent, seen, close };
}

async function main(): Promise<boolean> {
  const first = editor('first', false);
  await first.agent.request('initialize', { protocolVersion: 1, clientCapabilities: {} });
  const { sessionId } = await first.agent.request('session/new', { cwd: process.cwd(), mcpServers: [] });
  const prompt = [{ type: 'text' as const, text: 'Use the tool, then tell me about the railway.' }];
  const turn = first.agent.request<PromptResponse>('session/prompt', { sessionId, prompt });

  const second = editor('second', true);
  await second.agent.request('initialize', { protocolVersion: 1, clientCapabilities: {} });
  const { sessions } = await second.agent.request('session/list', {});
  process.stdout.write(`the second editor lists: ${sessions.map((session) => session.sessionId).join(' ')}\n`);
  await second.agent.request('session/load', { sessionId, cwd: process.cwd(), mcpServers: [] });

  const { stopReason } = await turn;
  while (second.seen.text.length < ANSWER.length) await new Promise((resolve) => setTimeout(resolve, 10));
  process.stdout.write(`the turn ended with ${stopReason}; the question was answered by the second editor\n`);
  process.stdout.write(`first: ${first.seen.text.length} characters, second: ${second.seen.text.length}\n`);
  await first.close();
  await second.close();
  const same = first.seen.text === ANSWER && second.seen.text === ANSWER;
  return same && first.seen.questions === 1 && second.seen.questions === 1;
}

await runExample(main);
// The daemon leaves after half a second without clients; its files lie here until then.
await new Promise((resolve) => setTimeout(resolve, 1500));
rmSync(dir, { recursive: true, force: true });
