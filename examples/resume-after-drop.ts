/**
 * The main job, to look at: a client is cut off in the middle of a message, comes back with the eventId it saw last, and
 * gets exactly the rest. The sidecar runs as its own process in front of the example agent. Nothing here is special to
 * our software but `_meta.sidecar.afterEventId`: the client is plain JSON-RPC over a WebSocket.
 *
 * Exits 0 when every word came once, 1 otherwise.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { WebSocket } from 'ws';
import { ANSWER } from './answer.ts';

const CUT_AFTER_CHARACTERS = Math.floor(ANSWER.length * 0.35);
const AWAY_MS = 1500;
const LIMIT_MS = 30_000;

const colors = process.stdout.isTTY && process.env['NO_COLOR'] === undefined;
const paint = (code: number, text: string): string => (colors ? `\u001b[${code}m${text}\u001b[0m` : text);
const CYAN = 36;
const GREEN = 32;
const YELLOW = 33;

interface Message {
  readonly id?: number;
  readonly method?: string;
  readonly params?: Record<string, unknown>;
  readonly result?: Record<string, unknown>;
  readonly error?: unknown;
}

function print(text: string): void {
  process.stdout.write(text);
}

function note(text: string): void {
  print(`\n${paint(YELLOW, `--- ${text}`)}\n`);
}

/** A member at a path of a JSON value. */
function at(value: unknown, ...path: string[]): unknown {
  return path.reduce<unknown>((inner, key) => (inner as Record<string, unknown> | undefined)?.[key], value);
}

/** Starts the sidecar and resolves when it accepts connections. */
async function startSidecar(store: string): Promise<{ endpoint: string; stop: () => Promise<void> }> {
  const sidecar = join(import.meta.dirname, '../../bin/acp-sidecar.cjs');
  const exampleAgent = join(import.meta.dirname, 'agent.js');
  const options = ['--store', store, '--listen', '127.0.0.1:0', '--log-level', 'warn'];
  const args = [sidecar, 'serve', ...options, '--', process.execPath, exampleAgent];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const ready = new Promise<string>((resolve, reject) => {
    createInterface(child.stdout).once('line', (line) => {
      resolve((JSON.parse(line) as { endpoints: [string] }).endpoints[0]);
    });
    child.once('exit', (code) => reject(new Error(`the sidecar ended with exit code ${code} before it was ready`)));
  });
  const stop = async (): Promise<void> => {
    child.kill('SIGTERM');
    await exited;
  };
  return { endpoint: await ready, stop };
}

/** A client of a few lines: requests, and a callback for each notification. */
class Client {
  readonly #socket: WebSocket;
  readonly #waiting = new Map<number, (message: Message) => void>();
  #lastId = 0;

  private constructor(socket: WebSocket, onNotification: (message: Message) => void) {
    this.#socket = socket;
    socket.on('message', (data: Buffer) => {
      const message = JSON.parse(data.toString('utf8')) as Message;
      if (message.method === undefined && message.id !== undefined) this.#waiting.get(message.id)?.(message);
      else onNotification(message);
    });
  }

  static async connect(endpoint: string, onNotification: (message: Message) => void): Promise<Client> {
    const socket = new WebSocket(endpoint);
    await new Promise((resolve, reject) => {
      socket.once('open', resolve);
      socket.once('error', reject);
    });
    const client = new Client(socket, onNotification);
    // Opting in is what makes the sidecar tell when a turn ends that another connection began.
    const clientCapabilities = { _meta: { sidecar: { version: 1 } } };
    await client.request('initialize', { protocolVersion: 1, clientCapabilities });
    return client;
  }

  request(method: string, params: unknown): Promise<Record<string, unknown>> {
    const id = ++this.#lastId;
    this.#socket.send(JSON.stringify({ jsonrpc: '2.0', id, method, params }));
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, ({ result, error }) => {
        if (error === undefined) resolve(result ?? {});
        else reject(new Error(`${method}: ${JSON.stringify(error)}`));
      });
    });
  }

  /** As when a laptop lid closes: no goodbye. */
  cut(): void {
    this.#socket.terminate();
  }
}

/** What a client keeps: the text, and the eventId of the last message it applied. */
class Seen {
  text = '';
  eventId = '';
  readonly #color: number;

  constructor(color: number) {
    this.#color = color;
  }

  apply(message: Message): void {
    if (message.method !== 'session/update') return;
    const eventId = at(message, 'params', '_meta', 'eventId');
    if (typeof eventId === 'string') this.eventId = eventId;
    if (at(message, 'params', 'update', 'sessionUpdate') !== 'agent_message_chunk') return;
    const text = String(at(message, 'params', 'update', 'content', 'text'));
    this.text += text;
    print(paint(this.#color, text));
  }
}

async function untilCut(endpoint: string): Promise<{ sessionId: string; before: Seen }> {
  const before = new Seen(CYAN);
  let cutNow: () => void = () => undefined;
  const enough = new Promise<void>((resolve) => {
    cutNow = resolve;
  });
  const client = await Client.connect(endpoint, (message) => {
    if (before.text.length >= CUT_AFTER_CHARACTERS) return;
    before.apply(message);
    if (before.text.length >= CUT_AFTER_CHARACTERS) cutNow();
  });
  const { sessionId } = (await client.request('session/new', { cwd: process.cwd(), mcpServers: [] })) as {
    sessionId: string;
  };
  note('a client sends a prompt; the agent answers word by word');
  const prompt = [{ type: 'text', text: 'Tell me about the railway.' }];
  // The answer to this request never arrives: the connection is cut first.
  client.request('session/prompt', { sessionId, prompt }).catch(() => undefined);
  await enough;
  client.cut();
  return { sessionId, before };
}

async function afterCut(endpoint: string, sessionId: string, afterEventId: string): Promise<Seen> {
  const after = new Seen(GREEN);
  let turnEnded: () => void = () => undefined;
  const ended = new Promise<void>((resolve) => {
    turnEnded = resolve;
  });
  const client = await Client.connect(endpoint, (message) => {
    after.apply(message);
    if (message.method === '_sidecar/turn' && message.params?.['state'] === 'ended') turnEnded();
  });
  const _meta = { sidecar: { afterEventId } };
  const loaded = await client.request('session/load', { sessionId, cwd: process.cwd(), mcpServers: [], _meta });
  const mode = at(loaded, '_meta', 'sidecar', 'mode');
  if (mode !== 'tail') throw new Error(`expected a replay of the tail, got ${JSON.stringify(mode)}`);
  await ended;
  client.cut();
  return after;
}

function report(before: Seen, after: Seen): boolean {
  const right = before.text + after.text === ANSWER;
  note(
    `before the cut: ${before.text.length} characters, after it: ${after.text.length}, the answer: ${ANSWER.length}`,
  );
  if (right) print(`${paint(GREEN, 'Nothing is missing and nothing came twice.')}\n`);
  else print(`WRONG. Together they are:\n${before.text}|${after.text}\n`);
  return right;
}

const OWN_AGENT = `
Your own agent in front of the same sidecar:

  bin/acp-sidecar.cjs serve --listen 127.0.0.1:7777 -- <your agent's command>

for example  -- gemini --experimental-acp  or  -- npx -y @zed-industries/claude-code-acp
Then connect ACP clients to ws://127.0.0.1:7777/acp, and look at what is kept with
\`bin/acp-sidecar.cjs sessions\` and \`bin/acp-sidecar.cjs events ID\`.
`;

async function main(): Promise<boolean> {
  const store = mkdtempSync(join(tmpdir(), 'acp-sidecar-demo-'));
  const sidecar = await startSidecar(store);
  try {
    const { sessionId, before } = await untilCut(sidecar.endpoint);
    note(`cut off in the middle of a message, after eventId ${before.eventId}; the agent goes on`);
    await sleep(AWAY_MS);
    note(`back with session/load and _meta.sidecar.afterEventId; only what was missed comes, then it goes on live`);
    const after = await afterCut(sidecar.endpoint, sessionId, before.eventId);
    return report(before, after);
  } finally {
    await sidecar.stop();
    rmSync(store, { recursive: true, force: true });
  }
}

const limit = setTimeout(() => {
  process.stderr.write(`not done after ${LIMIT_MS / 1000} s\n`);
  process.exit(1);
}, LIMIT_MS);
try {
  const right = await main();
  if (right) print(OWN_AGENT);
  process.exitCode = right ? 0 : 1;
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
clearTimeout(limit);
