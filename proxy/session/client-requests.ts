/**
 * Requests of the agent that act on one client: `fs/*`, `terminal/*` and custom ones. Exactly one client gets each.
 *
 *   ask -> the terminal's owner | the driver if it can | the most recently active that can | an error at once
 *   client cut, with a clientId    -> waits 30 s for it, sent again with the same requestKey when it attaches
 *   client cut, without, or leaves -> the agent gets its error now
 *
 * Nothing waits for ever.
 */
import { rpcError } from '../../protocol/error.ts';
import { type ResponseMessage, notificationText, requestText, withId } from '../../protocol/json-rpc.ts';
import { advertises, capabilityFor } from '../../protocol/methods.ts';
import { type AgentRequest, errorAnswer } from './agent-request.ts';
import type { Client } from './client.ts';
import { publicParams } from './public-params.ts';
import { controllersOf, driverOf, sameClient } from './same-client.ts';
import type { Session } from './session.ts';
import { withSidecarMeta } from '../../protocol/sidecar-meta.ts';
import { Terminals } from './terminals.ts';

interface Pending {
  readonly request: AgentRequest;
  /** Told to clients with a clientId: they run it once, however often it is sent. */
  readonly requestKey: string;
  client: Client;
  /** Undefined while the client is away. */
  requestId: string | undefined;
}

/** A client that was cut off and is waited for. */
interface Away {
  readonly client: Client;
  readonly timer: NodeJS.Timeout;
}

/** A client with a clientId that was cut off is waited for so long. */
export const AWAY_MS = 30_000;

export class ClientRequests {
  readonly terminals: Terminals;
  readonly #session: Session;
  readonly #awayMs: number;
  readonly #pending = new Map<string, Pending>();
  readonly #away = new Map<string, Away>();

  constructor(session: Session, awayMs = AWAY_MS) {
    this.#session = session;
    this.#awayMs = awayMs;
    this.terminals = new Terminals(session);
  }

  get pending(): number {
    return this.#pending.size;
  }

  /** Nothing here has to outlive the session in memory. */
  get idle(): boolean {
    return this.#pending.size === 0 && this.#away.size === 0 && this.terminals.idle;
  }

  ask(request: AgentRequest): void {
    const client = this.#choose(request);
    if ('refused' in client) {
      errorAnswer(request, client.refused);
      return;
    }
    const pending: Pending = { request, client, requestKey: this.#session.host.newId(), requestId: undefined };
    this.#pending.set(request.id, pending);
    // What a terminal printed is asked for before its client may forget it.
    if (request.method === 'terminal/release') {
      this.terminals.fetch(String(request.params['terminalId']), () => {
        if (this.#pending.get(request.id) === pending) this.#send(pending);
      });
    } else this.#send(pending);
  }

  /** The agent's `$/cancel_request`. False when the id is not one of these. */
  cancelByAgent(agentRequestId: string): boolean {
    const pending = this.#pending.get(agentRequestId);
    if (!pending) return false;
    if (pending.requestId !== undefined) this.#tellCancelled(pending.client, pending.requestId);
    else {
      this.#pending.delete(agentRequestId);
      errorAnswer(pending.request, rpcError('cancelled'));
    }
    return true;
  }

  /** A client is here: what waited for it is sent again. */
  clientAttached(client: Client): void {
    if (client.identity === undefined) return;
    const away = this.#away.get(client.identity);
    if (!away) return;
    clearTimeout(away.timer);
    this.#away.delete(client.identity);
    this.terminals.clientBack(client);
    for (const pending of this.#pending.values()) {
      if (pending.requestId !== undefined || !sameClient(pending.client, client)) continue;
      pending.client = client;
      this.#send(pending);
    }
  }

  clientLeft(client: Client): void {
    for (const pending of this.#pending.values()) {
      if (pending.client !== client || pending.requestId === undefined) continue;
      client.forget(pending.requestId);
      pending.requestId = undefined;
    }
    const { identity } = client;
    // One that went by itself does not come back for them.
    if (client.open || identity === undefined) {
      this.#lost(client);
      return;
    }
    clearTimeout(this.#away.get(identity)?.timer);
    const timer = setTimeout(() => {
      this.#away.delete(identity);
      this.#lost(client);
    }, this.#awayMs);
    this.#away.set(identity, { client, timer });
  }

  agentExited(): void {
    for (const { client, requestId } of this.#pending.values()) {
      if (requestId === undefined) continue;
      client.forget(requestId);
      this.#tellCancelled(client, requestId);
    }
    this.#pending.clear();
    this.terminals.agentExited();
  }

  close(): void {
    for (const { timer } of this.#away.values()) clearTimeout(timer);
  }

  #send(pending: Pending): void {
    const { request, client, requestKey } = pending;
    if (!client.open || !this.#session.clients.has(client)) return;
    const requestId = client.expect((answer) => this.#answered(pending, client, answer));
    pending.requestId = requestId;
    let params = publicParams(this.#session, client, request.paramsText);
    if (client.identity !== undefined) params = withSidecarMeta(params, { requestKey });
    client.send(requestText(requestId, request.method, params));
    client.kick();
  }

  #answered(pending: Pending, client: Client, answer: ResponseMessage | 'gone'): void {
    const { request } = pending;
    // A client that is cut leaves its sessions first: `clientLeft` has dealt with it.
    if (answer === 'gone') return;
    this.#pending.delete(request.id);
    const refusal = this.terminals.answered(request, client, answer);
    if (refusal) errorAnswer(request, refusal);
    else request.agent.respond(withId(answer, request.id));
  }

  /** The client is not waited for: its requests get their error, its terminals are gone. */
  #lost(client: Client): void {
    for (const [id, { request, client: owner, requestId }] of this.#pending) {
      if (requestId !== undefined || !sameClient(owner, client)) continue;
      this.#pending.delete(id);
      this.#session.logger.info({ clientId: client.clientId, method: request.method }, 'a client left a request open');
      errorAnswer(request, rpcError('client_gone'));
    }
    this.terminals.ownerLost(client);
  }

  #choose(request: AgentRequest): Client | { readonly refused: ReturnType<typeof rpcError> } {
    const { method, params } = request;
    const { terminalId } = params;
    if (method.startsWith('terminal/') && method !== 'terminal/create' && typeof terminalId === 'string') {
      const owner = this.terminals.ownerOf(terminalId);
      return owner ? this.#present(owner) : { refused: rpcError('invalid_params', 'no client has this terminal') };
    }
    const capability = capabilityFor(method, params);
    const can = (client: Client): boolean => capability === undefined || advertises(client.capabilities, capability);
    const driver = driverOf(this.#session);
    const away = [...this.#away.values()].map((entry) => entry.client).filter(can);
    const absent = driver && away.find((client) => sameClient(client, driver));
    // The driver that was cut a moment ago is still the driver.
    const chosen = absent ?? controllersOf(this.#session).find(can) ?? away.at(-1);
    return chosen ?? { refused: rpcError('method_not_found', `no attached client can answer ${method}`) };
  }

  #present(owner: Client): Client {
    return [...this.#session.clients.keys()].find((client) => sameClient(client, owner)) ?? owner;
  }

  #tellCancelled(client: Client, requestId: string): void {
    client.send(notificationText('$/cancel_request', `{"requestId":${requestId}}`));
    client.kick();
  }
}
