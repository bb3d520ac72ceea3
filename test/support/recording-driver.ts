import { isDeepStrictEqual } from 'node:util';
import { at, isRequest, isResponse, type Message, type Received, updateOf } from './json.ts';
import type { RawClient } from './raw-client.ts';
import type { RecordedAgent } from './recorded-agent.ts';
import type { RecordedEntry, RecordedLife } from './recording.ts';
import { waitFor } from './wait-for.ts';

/** Requests of the recordings that a sidecar serves in its own way; they have tests of their own. */
export const NOT_PLAYED = new Set([
  'session/fork',
  'session/load',
  'session/resume',
  'session/close',
  'session/delete',
]);

/** What was played: the sessions, by the agent's id, and the prompts that were sent, by promptId. */
export interface Played {
  readonly publicIds: ReadonlyMap<string, string>;
  readonly prompts: ReadonlyMap<string, readonly unknown[]>;
  /** Prompts of one session in the order they were sent. */
  readonly promptIds: ReadonlyMap<string, readonly string[]>;
}

function withoutOurs(params: unknown): Record<string, unknown> {
  const { _meta, sessionId: _sessionId, ...rest } = params as Record<string, unknown>;
  const { sidecar: _sidecar, requestKey: _requestKey, ...meta } = (_meta ?? {}) as Record<string, unknown>;
  return Object.keys(meta).length > 0 ? { ...rest, _meta: meta } : rest;
}

/**
 * Plays the client's side of a recorded life through a sidecar. A recorded message is sent once the agent has written
 * all that came before it in the recording and the client has it, so that what follows what is decided by the recording.
 */
export class RecordingDriver {
  readonly #life: RecordedLife;
  readonly #agent: RecordedAgent;
  readonly #client: RawClient;
  readonly #publicIds = new Map<string, string>();
  readonly #prompts = new Map<string, readonly unknown[]>();
  readonly #promptIds = new Map<string, string[]>();
  readonly #pending = new Map<number | string | null | undefined, Promise<Received>>();
  readonly #agentRequests = new Map<number | string | null | undefined, Message>();
  readonly #answered = new Set<Received>();
  /** Called when a session's public id is known. */
  onSession: ((publicId: string) => Promise<void>) | undefined;

  constructor(life: RecordedLife, agent: RecordedAgent, client: RawClient) {
    this.#life = life;
    this.#agent = agent;
    this.#client = client;
  }

  async play(): Promise<Played> {
    const skipped = new Set<number | string | null | undefined>();
    const played = new Set<number>();
    for (const exchange of this.#agent.exchanges) {
      if (NOT_PLAYED.has(exchange.method)) skipped.add(exchange.request.id);
      else for (const step of exchange.steps) played.add(step.index);
    }
    let before = -1;
    for (const entry of this.#life.entries) {
      const { message, index } = entry;
      if (entry.from === 'agent') {
        if (isRequest(message)) this.#agentRequests.set(message.id, message);
        if (isResponse(message)) await this.#pending.get(message.id);
        else if (played.has(index) && this.#known(message)) before = index;
        continue;
      }
      if (isRequest(message) && skipped.has(message.id)) continue;
      if (before >= 0) await this.#caughtUp(before);
      await this.#fromClient(entry);
    }
    for (const answer of this.#pending.values()) await answer;
    return { publicIds: this.#publicIds, prompts: this.#prompts, promptIds: this.#promptIds };
  }

  #known(message: Message): boolean {
    const session = at(message, 'params', 'sessionId');
    return typeof session !== 'string' || this.#publicIds.has(session);
  }

  /** The agent wrote the entry, and the client has what it wrote. */
  async #caughtUp(index: number): Promise<void> {
    const what = (): string =>
      `the agent to write recorded entry ${index} of ${this.#life.name}: ${this.#life.entries[index]?.text.slice(0, 200)}`;
    await waitFor(what, () => this.#agent.happened.some((entry) => entry.index === index));
    const last = this.#life.entries[index]?.message;
    if (last && isRequest(last)) await this.#matching(last, new Set());
    for (const [agentId, publicId] of this.#publicIds) {
      await waitFor(
        () => `the client to have what the agent wrote to ${agentId} in ${this.#life.name}`,
        () => amount(this.#client.updates(publicId)) >= amount(this.#written(agentId)),
      );
    }
  }

  #written(agentId: string): Received[] {
    return this.#agent.happened.filter(({ dir, message }) => {
      return dir === 'out' && updateOf(message) && at(message, 'params', 'sessionId') === agentId;
    });
  }

  async #fromClient({ message, text }: RecordedEntry): Promise<void> {
    if (isResponse(message)) {
      await this.#answer(message);
      return;
    }
    const params = this.#translated(message);
    if (params === undefined) return;
    if (!isRequest(message)) {
      this.#client.notify(message.method ?? text, params);
      return;
    }
    const method = message.method ?? '';
    const full =
      method === 'session/prompt' ? this.#prompt(params) : method === 'initialize' ? optedIn(params) : params;
    const answer = this.#client.ask(method, full, `rec-${String(message.id)}`);
    this.#pending.set(message.id, answer);
    if (method !== 'session/new') return;
    const recorded = this.#agent.exchanges.find(({ request }) => request === message);
    const response = this.#life.entries[recorded?.responseAt ?? -1]?.message;
    const publicId = String(at((await answer).message, 'result', 'sessionId'));
    this.#publicIds.set(String(at(response, 'result', 'sessionId')), publicId);
    await this.onSession?.(publicId);
  }

  /** The params with the public session id; undefined for a session that this life does not play (a fork's). */
  #translated(message: Message): Record<string, unknown> | undefined {
    const params = message.params ?? {};
    const session = params['sessionId'];
    if (typeof session !== 'string') return params;
    const publicId = this.#publicIds.get(session);
    if (publicId === undefined && session !== 'no-such-session') return undefined;
    return { ...params, sessionId: publicId ?? session };
  }

  #prompt(params: Record<string, unknown>): Record<string, unknown> {
    const promptId = `prompt-${this.#prompts.size}`;
    const session = String(params['sessionId']);
    this.#prompts.set(promptId, params['prompt'] as unknown[]);
    this.#promptIds.set(session, [...(this.#promptIds.get(session) ?? []), promptId]);
    return { ...params, _meta: { ...(params['_meta'] as object | undefined), sidecar: { promptId } } };
  }

  async #answer(message: Message): Promise<void> {
    const request = this.#agentRequests.get(message.id);
    if (!request || !this.#known(request)) return;
    const received = await this.#matching(request, this.#answered);
    this.#answered.add(received);
    const { jsonrpc: _jsonrpc, id: _id, ...answer } = message;
    this.#client.sendMessage({ id: received.message.id, ...answer });
  }

  /** The client's copy of an agent's request; of several equal ones the first that is not in `except`. */
  async #matching(request: Message, except: ReadonlySet<Received>): Promise<Received> {
    const wanted = withoutOurs(request.params);
    return this.#client.until(`the agent's ${request.method}`, (entry) => {
      const same =
        entry.message.method === request.method && isDeepStrictEqual(withoutOurs(entry.message.params), wanted);
      return same && !except.has(entry);
    });
  }
}

function optedIn(params: Record<string, unknown>): Record<string, unknown> {
  const capabilities = params['clientCapabilities'] as Record<string, unknown>;
  const meta = capabilities['_meta'] as object | undefined;
  return { ...params, clientCapabilities: { ...capabilities, _meta: { ...meta, sidecar: { version: 1 } } } };
}

/** Updates that are not text, and characters of text: neither grows when chunks are merged. */
function amount(updates: readonly Received[]): number {
  let sum = 0;
  for (const { message } of updates) {
    if (at(message, 'params', '_meta', 'sidecar', 'synthetic') === true) continue;
    const text = at(updateOf(message), 'content', 'text');
    const kind = String(updateOf(message)?.['sessionUpdate']);
    if (kind === 'user_message_chunk') continue;
    sum += kind.endsWith('_chunk') && typeof text === 'string' ? text.length : 1;
  }
  return sum;
}
