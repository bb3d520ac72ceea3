import { existsSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { frameHeader, frameReader } from './bridge-frames.ts';
import { isRequest, type Message, type Received } from './json.ts';
import { lineSplitter } from './line-splitter.ts';
import type { Scope } from './scope.ts';
import { tempDir } from './temp-dir.ts';
import { within } from './wait-for.ts';

/** The root of the checkout; the same from `test/support` and from `dist/test/support`. */
export const ROOT = fileURLToPath(new URL('.', import.meta.url)).replace(/(?:dist\/)?test\/support\/$/, '');

const PROGRAM = join(ROOT, 'dist/test/support/agent-program.js');

/** The command of the standalone agent, see `stream-agent.ts`. */
export function streamAgentCommand(): string[] {
  if (!existsSync(PROGRAM)) throw new Error(`${PROGRAM} is missing: run tsc -b first`);
  return [process.execPath, PROGRAM, 'stream'];
}

/** The command of the standalone agent, see `fault-agent.ts`. */
export function faultAgentCommand(): string[] {
  return [process.execPath, PROGRAM, 'fault'];
}

/** What a handler gives back: a result, or nothing when the test answers by itself. */
export type AgentHandler = (request: Message, life: AgentLife) => unknown;

/** One process of the agent. Everything that arrived on its stdin is in `received`, in order, raw and parsed. */
export class AgentLife {
  readonly received: Received[] = [];
  readonly signals: string[] = [];
  pid = 0;
  env: Record<string, string> = {};
  stdinEnded = false;
  closed = false;
  readonly #socket: Socket;
  #changed: (() => void)[] = [];

  constructor(socket: Socket, onMessage: (received: Received, life: AgentLife) => void, onHello: () => void) {
    this.#socket = socket;
    const line = lineSplitter((text) => {
      let message: Message = {};
      try {
        message = JSON.parse(text) as Message;
      } catch {
        // A broken line is kept as text; the test that cares looks at it.
      }
      const received = { text, message };
      this.received.push(received);
      onMessage(received, this);
      this.#wake();
    });
    const read = frameReader((type, body) => {
      if (type === 'H') {
        const hello = JSON.parse(body.toString()) as { pid: number; env: Record<string, string> };
        this.pid = hello.pid;
        this.env = hello.env;
        onHello();
      } else if (type === 'I') line(Buffer.from(body));
      else if (type === 'Z') this.stdinEnded = true;
      else if (type === 'S') this.signals.push(body.toString());
      this.#wake();
    });
    socket.on('data', read);
    socket.on('error', () => undefined);
    socket.on('close', () => {
      this.closed = true;
      this.#wake();
    });
  }

  #wake(): void {
    const waiting = this.#changed;
    this.#changed = [];
    for (const wake of waiting) wake();
  }

  #frame(type: 'O' | 'E' | 'Q' | 'X' | 'C' | 'G', body: Buffer = Buffer.alloc(0)): void {
    this.#socket.write(frameHeader(type, body.length));
    if (body.length > 0) this.#socket.write(body);
  }

  /** Writes bytes to the agent's stdout as they are. */
  write(bytes: string | Buffer): void {
    this.#frame('O', typeof bytes === 'string' ? Buffer.from(bytes) : bytes);
  }

  line(text: string): void {
    this.write(`${text}\n`);
  }

  send(message: object): void {
    this.line(JSON.stringify({ jsonrpc: '2.0', ...message }));
  }

  update(sessionId: string, update: object, more: object = {}): void {
    this.send({ method: 'session/update', params: { sessionId, update, ...more } });
  }

  /** A text chunk of the agent's message. */
  say(sessionId: string, text: string, more: object = {}): void {
    this.update(sessionId, { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text }, ...more });
  }

  reply(request: Message, result: unknown): void {
    this.send({ id: request.id, result });
  }

  fail(request: Message, code: number, message: string): void {
    this.send({ id: request.id, error: { code, message } });
  }

  stderr(text: string): void {
    this.#frame('E', Buffer.from(text));
  }

  closeStdout(): void {
    this.#frame('Q');
  }

  exit(code: number): void {
    this.#frame('X', Buffer.from(String(code)));
  }

  /** Starts a process in the agent's group that lives until somebody ends it. */
  startChild(): void {
    this.#frame('C');
  }

  /** From now on neither the end of stdin nor SIGTERM ends the process. */
  beStubborn(): void {
    this.#frame('G');
  }

  /** Resolves once `find` gives something truthy; asked again whenever anything arrived from the process. */
  async until<T>(what: string, find: (life: AgentLife) => T, timeoutMs = 15_000): Promise<NonNullable<T>> {
    const deadline = performance.now() + timeoutMs;
    for (;;) {
      const found = find(this);
      if (found) return found;
      await within(
        () => `the agent to see ${what}; it saw:\n${this.received.map((r) => r.text.slice(0, 200)).join('\n')}`,
        new Promise<void>((resolve) => this.#changed.push(resolve)),
        Math.max(1, deadline - performance.now()),
      );
    }
  }

  /** The n-th (from 0) request or notification of a method that arrived on stdin. */
  async saw(method: string, n = 0, timeoutMs = 15_000): Promise<Received> {
    return this.until(
      `${method} number ${n}`,
      () => this.received.filter((entry) => entry.message.method === method)[n],
      timeoutMs,
    );
  }

  /** The answer to a request that the agent sent. */
  async answerTo(id: number | string | null): Promise<Received> {
    return this.until(`an answer to its request ${JSON.stringify(id)}`, () =>
      this.received.find((entry) => entry.message.method === undefined && entry.message.id === id),
    );
  }
}

/**
 * An agent whose processes are real and whose words are the test's. `command` starts one; each start is a new `AgentLife`.
 * `initialize` and `session/new` are answered by themselves, unless `handlers` says otherwise.
 */
export class ScriptedAgent {
  readonly command: string[];
  readonly lives: AgentLife[] = [];
  /** By method. A handler that returns undefined leaves the answer to the test. */
  readonly handlers = new Map<string, AgentHandler>();
  /** Sees everything before the handlers do; `true` means that it was dealt with. */
  intercept: ((received: Received, life: AgentLife) => boolean) | undefined;
  #sessions = 0;
  #waiting: (() => void)[] = [];

  private constructor(path: string) {
    this.command = [process.execPath, PROGRAM, 'bridge', path];
    this.handlers.set('initialize', () => ({ protocolVersion: 1, agentCapabilities: {} }));
    this.handlers.set('session/new', () => ({ sessionId: `agent-session-${++this.#sessions}` }));
  }

  static async listen(scope: Scope): Promise<ScriptedAgent> {
    if (!existsSync(PROGRAM)) throw new Error(`${PROGRAM} is missing: run tsc -b first`);
    const path = join(tempDir(scope), 'agent.sock');
    const agent = new ScriptedAgent(path);
    const sockets = new Set<Socket>();
    const server: Server = createServer((socket) => {
      sockets.add(socket);
      socket.on('close', () => sockets.delete(socket));
      const life: AgentLife = new AgentLife(
        socket,
        (received, from) => agent.#receive(received, from),
        () => {
          agent.lives.push(life);
          for (const wake of agent.#waiting.splice(0)) wake();
        },
      );
    });
    await new Promise<void>((resolve) => server.listen(path, resolve));
    scope.defer(() => {
      for (const socket of sockets) socket.destroy();
      server.close();
    });
    return agent;
  }

  #receive(received: Received, life: AgentLife): void {
    if (this.intercept?.(received, life)) return;
    const { message } = received;
    const handler = this.handlers.get(message.method ?? '');
    if (!handler) return;
    const result = handler(message, life);
    if (result !== undefined && isRequest(message)) life.reply(message, result);
  }

  /** The n-th process of this agent (from 0). */
  async life(n = 0, timeoutMs = 15_000): Promise<AgentLife> {
    for (;;) {
      const life = this.lives[n];
      if (life) return life;
      await within(`agent process number ${n}`, new Promise<void>((resolve) => this.#waiting.push(resolve)), timeoutMs);
    }
  }
}
