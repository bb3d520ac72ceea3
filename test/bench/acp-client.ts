/** An ACP client for measuring: requests by promise, updates straight to the check that counts them. */
import { ProcessClient } from './process-client.ts';
import type { StreamCheck } from './stream-check.ts';
import { type Block, WebSocketClient } from './websocket-client.ts';

interface Answer {
  readonly id?: number;
  readonly method?: string;
  readonly result?: Record<string, unknown>;
  readonly error?: { readonly message: string };
}

interface Pending {
  readonly method: string;
  readonly resolve: (result: Record<string, unknown>) => void;
  readonly reject: (error: Error) => void;
}

export class AcpClient {
  /** Where updates go; without one they are dropped. */
  check: StreamCheck | undefined;
  readonly #pending = new Map<number, Pending>();
  #socket: WebSocketClient | ProcessClient | undefined;
  #lastId = 0;

  /** Connects to `ws://HOST:PORT/acp` and initializes. */
  static async connect(url: string): Promise<AcpClient> {
    const client = new AcpClient();
    client.#socket = await WebSocketClient.open(url, {
      message: (block, from, to) => client.#take(block, from, to),
      closed: (reason) => client.#fail(reason),
    });
    await client.request('initialize', { protocolVersion: 1, clientCapabilities: {} });
    return client;
  }

  /** Starts a command that speaks ACP on stdio and initializes. */
  static async overProcess(command: readonly string[], env: NodeJS.ProcessEnv): Promise<AcpClient> {
    const client = new AcpClient();
    client.#socket = new ProcessClient(command, env, {
      message: (block, from, to) => client.#take(block, from, to),
      closed: (reason) => client.#fail(reason),
    });
    await client.request('initialize', { protocolVersion: 1, clientCapabilities: {} });
    return client;
  }

  /** Closes, and waits for the process to end. */
  async end(): Promise<void> {
    this.close();
    if (this.#socket instanceof ProcessClient) await this.#socket.exited;
  }

  request(method: string, params: unknown): Promise<Record<string, unknown>> {
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      this.#pending.set(id, { method, resolve, reject });
      this.#socket?.send(JSON.stringify({ jsonrpc: '2.0', id, method, params }));
    });
  }

  async newSession(): Promise<string> {
    const { sessionId } = await this.request('session/new', { cwd: '/', mcpServers: [] });
    return String(sessionId);
  }

  /** Attaches to a session and replays it: all of it, or what came after the event id `afterEventId`. */
  load(sessionId: string, afterEventId?: string): Promise<Record<string, unknown>> {
    const cursor = afterEventId === undefined ? {} : { _meta: { sidecar: { afterEventId } } };
    return this.request('session/load', { sessionId, cwd: '/', mcpServers: [], ...cursor });
  }

  prompt(sessionId: string, script: string): Promise<Record<string, unknown>> {
    return this.request('session/prompt', { sessionId, prompt: [{ type: 'text', text: script }] });
  }

  close(): void {
    this.#socket?.close();
  }

  #take(block: Block, from: number, to: number): void {
    if (this.check?.take(block, from, to)) return;
    const message = JSON.parse(block.bytes.toString('utf8', from, to)) as Answer;
    if (message.method !== undefined || message.id === undefined) return;
    const pending = this.#pending.get(message.id);
    this.#pending.delete(message.id);
    if (message.error) pending?.reject(new Error(`${pending.method}: ${message.error.message}`));
    else pending?.resolve(message.result ?? {});
  }

  #fail(reason: string): void {
    for (const { method, reject } of this.#pending.values()) reject(new Error(`${method}: ${reason}`));
    this.#pending.clear();
  }
}
