import { at, eventIdOf, isRequest, isResponse, type Message, type Received, textAt, updateOf } from './json.ts';
import {
  type Closed,
  openProcess,
  openUnix,
  openWebSocket,
  type RawTransport,
  type WebSocketOptions,
} from './raw-transport.ts';
import type { Scope } from './scope.ts';
import { within } from './wait-for.ts';

/** An error that the other side answered with. */
export class RpcError extends Error {
  readonly code: number;
  readonly data: unknown;

  constructor(error: { readonly code: number; readonly message: string; readonly data?: unknown }, what: string) {
    super(`${what}: ${error.code} ${error.message} ${JSON.stringify(error.data) ?? ''}`);
    this.code = error.code;
    this.data = error.data;
  }
}

/** Answers a request of the agent: a result, an `RpcError` thrown, or undefined for "not now". */
export type ClientHandler = (params: Record<string, unknown>, request: Received) => unknown;

export interface InitializeOptions {
  readonly capabilities?: object;
  /** Opts in to the sidecar's extensions; `true` for the plain opt-in. */
  readonly sidecar?: true | object;
}

const FULL_CAPABILITIES = {
  fs: { readTextFile: true, writeTextFile: true },
  terminal: true,
  elicitation: { form: {}, url: {} },
  session: { notices: {}, compaction: {}, configOptions: { boolean: {} } },
  plan: {},
  subagents: {},
};

/**
 * A client that keeps every message it got, in order, raw and parsed, and knows the cursor of each session. It does
 * nothing by itself: agent requests are answered only by a handler that the test gave.
 */
export class RawClient {
  readonly received: Received[] = [];
  readonly handlers = new Map<string, ClientHandler>();
  /** The newest eventId of each session. */
  readonly cursors = new Map<string, string>();
  /** The text of the agent's messages in each session, joined as it came. */
  readonly texts = new Map<string, string>();
  closed: Closed | undefined;
  /** Called with each message right after it was kept. */
  onReceived: ((received: Received) => void) | undefined;
  readonly #asked = new Map<number | string | null, string>();
  #transport: RawTransport | undefined;
  #nextId = 0;
  #changed: (() => void)[] = [];

  static async unix(scope: Scope, path: string): Promise<RawClient> {
    const client = new RawClient();
    client.#transport = await openUnix(path, client.#events());
    scope.defer(() => client.cut());
    return client;
  }

  /** The client of an agent that it starts itself, with nothing in between. */
  static direct(scope: Scope, command: readonly string[]): RawClient {
    const client = new RawClient();
    client.#transport = openProcess(command, client.#events());
    scope.defer(() => client.cut());
    return client;
  }

  static async webSocket(scope: Scope, url: string, options: WebSocketOptions = {}): Promise<RawClient> {
    const client = new RawClient();
    client.#transport = await openWebSocket(url, client.#events(), options);
    scope.defer(() => client.cut());
    return client;
  }

  #events(): { onText: (text: string) => void; onClose: (closed: Closed) => void } {
    return {
      onText: (text) => this.#receive(text),
      onClose: (closed) => {
        this.closed = closed;
        this.#wake();
      },
    };
  }

  #receive(text: string): void {
    const message = JSON.parse(text) as Message;
    const received = { text, message };
    this.received.push(received);
    const asked = isResponse(message) && message.id !== undefined ? this.#asked.get(message.id) : undefined;
    const session = at(message, 'params', 'sessionId') ?? at(message, 'result', 'sessionId') ?? asked;
    const eventId = eventIdOf(message);
    if (typeof session === 'string' && eventId !== undefined) this.cursors.set(session, eventId);
    const update = updateOf(message);
    if (update?.['sessionUpdate'] === 'agent_message_chunk') {
      const text = at(update, 'content', 'text');
      const key = String(at(message, 'params', 'sessionId'));
      if (typeof text === 'string') this.texts.set(key, (this.texts.get(key) ?? '') + text);
    }
    this.onReceived?.(received);
    this.#wake();
    const handler = isRequest(message) ? this.handlers.get(message.method ?? '') : undefined;
    if (handler) void this.#answer(handler, received);
  }

  async #answer(handler: ClientHandler, request: Received): Promise<void> {
    const { id, params = {} } = request.message;
    try {
      const result = await handler(params, request);
      if (result !== undefined) this.sendMessage({ id, result });
    } catch (error) {
      if (!(error instanceof RpcError)) throw error;
      this.sendMessage({ id, error: { code: error.code, message: error.message, data: error.data } });
    }
  }

  #wake(): void {
    if (this.#changed.length === 0) return;
    const waiting = this.#changed;
    this.#changed = [];
    for (const wake of waiting) wake();
  }

  get transport(): RawTransport {
    if (!this.#transport) throw new Error('the client is not connected');
    return this.#transport;
  }

  /** Sends text as it is. */
  send(text: string): void {
    this.transport.send(text);
  }

  sendMessage(message: object): void {
    this.send(JSON.stringify({ jsonrpc: '2.0', ...message }));
  }

  notify(method: string, params?: object): void {
    this.sendMessage({ method, ...(params && { params }) });
  }

  /** Ends as a cable that is pulled. */
  cut(): void {
    this.transport.cut();
  }

  close(): void {
    this.transport.close();
  }

  /** Sends a request and gives the whole answer, error or not. `id` is any JSON-RPC id; by default a new number. */
  ask(method: string, params: object = {}, id: number | string | null = this.#nextId++): Promise<Received> {
    const from = this.received.length;
    const session = at(params, 'sessionId');
    if (typeof session === 'string') this.#asked.set(id, session);
    this.sendMessage({ id, method, params });
    const answer = this.until(
      `the answer to ${method} (id ${JSON.stringify(id)})`,
      (entry) => isResponse(entry.message) && entry.message.id === id,
      { from, timeoutMs: 30_000 },
    );
    // Who cuts the connection on purpose need not wait for the answer that will not come.
    answer.catch(() => undefined);
    return answer;
  }

  /** Sends a request and gives its result. @throws RpcError for an error answer. */
  async request(method: string, params: object = {}, id?: number | string | null): Promise<unknown> {
    const { message } = await this.ask(method, params, id);
    if (message.error) throw new RpcError(message.error, method);
    return message.result;
  }

  async initialize({ capabilities = FULL_CAPABILITIES, sidecar }: InitializeOptions = {}): Promise<unknown> {
    const mine = sidecar === true ? { version: 1 } : sidecar && { version: 1, ...sidecar };
    return this.request('initialize', {
      protocolVersion: 1,
      clientCapabilities: { ...capabilities, ...(mine && { _meta: { sidecar: mine } }) },
      clientInfo: { name: 'raw-client', version: '1' },
    });
  }

  async newSession(cwd = '/tmp', more: object = {}): Promise<string> {
    return textAt(await this.request('session/new', { cwd, mcpServers: [], ...more }), 'sessionId');
  }

  async load(sessionId: string, afterEventId?: string, more: object = {}): Promise<unknown> {
    return this.request('session/load', attachParams(sessionId, afterEventId, more));
  }

  async resume(sessionId: string, afterEventId?: string, more: object = {}): Promise<unknown> {
    return this.request('session/resume', attachParams(sessionId, afterEventId, more));
  }

  async prompt(sessionId: string, text: string, more: object = {}): Promise<unknown> {
    return this.request('session/prompt', { sessionId, prompt: [{ type: 'text', text }], ...more });
  }

  /**
   * The first message from index `from` on that `accept` takes, waiting for it if need be. `from` defaults to 0: what is
   * there already counts.
   */
  async until(
    what: string,
    accept: (entry: Received) => boolean,
    { from = 0, timeoutMs = 15_000 }: { from?: number; timeoutMs?: number } = {},
  ): Promise<Received> {
    const deadline = performance.now() + timeoutMs;
    for (let i = from; ; i++) {
      while (i >= this.received.length) {
        if (this.closed) throw new Error(`the connection closed (${JSON.stringify(this.closed)}) before ${what}`);
        await within(
          () => `${what}; the client got ${this.received.length} messages, the last:\n${this.#tail()}`,
          new Promise<void>((resolve) => this.#changed.push(resolve)),
          Math.max(1, deadline - performance.now()),
        );
      }
      const entry = this.received[i] as Received;
      if (accept(entry)) return entry;
    }
  }

  async untilClosed(timeoutMs = 15_000): Promise<Closed> {
    const deadline = performance.now() + timeoutMs;
    while (!this.closed) {
      const left = Math.max(1, deadline - performance.now());
      await within('the connection to close', new Promise<void>((wake) => this.#changed.push(wake)), left);
    }
    return this.closed;
  }

  /** The n-th (from 0) message of a method. */
  async saw(method: string, n = 0): Promise<Received> {
    let seen = 0;
    return this.until(`${method} number ${n}`, ({ message }) => message.method === method && seen++ === n);
  }

  /** The session's `session/update`s, in the order they came. */
  updates(sessionId?: string, from = 0): Received[] {
    return this.received.slice(from).filter(({ message }) => {
      return updateOf(message) && (sessionId === undefined || at(message, 'params', 'sessionId') === sessionId);
    });
  }

  /** All text of the agent's messages in a session, joined. */
  agentText(sessionId?: string, from = 0): string {
    if (sessionId !== undefined && from === 0) return this.texts.get(sessionId) ?? '';
    return this.updates(sessionId, from)
      .map(({ message }) => updateOf(message))
      .filter((update) => update?.['sessionUpdate'] === 'agent_message_chunk')
      .map((update) => at(update, 'content', 'text'))
      .join('');
  }

  #tail(): string {
    return this.received
      .slice(-8)
      .map(({ text }) => text.slice(0, 240))
      .join('\n');
  }
}

function attachParams(sessionId: string, afterEventId: string | undefined, more: object): object {
  const meta = afterEventId === undefined ? {} : { _meta: { sidecar: { afterEventId } } };
  return { sessionId, cwd: '/tmp', mcpServers: [], ...meta, ...more };
}
