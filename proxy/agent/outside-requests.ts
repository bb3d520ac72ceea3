/**
 * Requests of the agent that name no session: request-scoped elicitations go to the client that the request came from,
 * unrecorded; anything else to the most recently active controller that can.
 */
import { rpcError } from '../../protocol/error.ts';
import { notificationText, requestText, withId } from '../../protocol/json-rpc.ts';
import { advertises, capabilityFor } from '../../protocol/methods.ts';
import { memberAt, setValue, splice, valueAt } from '../../protocol/wire-text.ts';
import { BOUNDS, MAX_AGENT_REQUESTS, boundHit } from '../bounds.ts';
import type { Connection } from '../connection.ts';
import type { Registry } from '../registry.ts';
import { type AgentRequest, errorAnswer } from '../session/agent-request.ts';
import type { Client } from '../session/client.ts';

interface Chosen {
  readonly client: Client;
  /** The client's id of the request that the elicitation belongs to, wire text. */
  readonly scope: string | undefined;
}

export interface OutsideOptions {
  readonly registry: Registry;
  readonly connections: ReadonlySet<Connection>;
}

/** Pages whose end is still to be told; the oldest goes first. */
const MAX_PAGES = 1000;

export class OutsideRequests {
  readonly #options: OutsideOptions;
  /** By the agent's id. */
  readonly #pending = new Map<string, { client: Client; requestId: string }>();
  /** Who was sent to a page, by elicitationId. */
  readonly #pages = new Map<string, Client>();

  constructor(options: OutsideOptions) {
    this.#options = options;
  }

  ask(request: AgentRequest): void {
    if (this.#pending.size >= MAX_AGENT_REQUESTS) {
      boundHit('agent_requests');
      const limit = 'agent_requests';
      errorAnswer(request, rpcError('limit_reached', BOUNDS[limit].limit, { limit }));
      return;
    }
    const elicits = request.method === 'elicitation/create';
    const scope = elicits ? valueAt(request.paramsText, ['requestId']) : undefined;
    const capability = capabilityFor(request.method, request.params);
    const can = (client: Client): boolean => capability === undefined || advertises(client.capabilities, capability);
    const chosen = scope === undefined ? this.#mostActive(can) : this.#requester(scope);
    if (!chosen || !can(chosen.client)) {
      const kind = elicits ? 'invalid_params' : 'method_not_found';
      errorAnswer(request, rpcError(kind, `no client can answer ${request.method}`));
      return;
    }
    const { client } = chosen;
    const requestId = client.expect((answer) => {
      this.#pending.delete(request.id);
      if (answer === 'gone') errorAnswer(request, rpcError('client_gone'));
      else request.agent.respond(withId(answer, request.id));
    });
    this.#pending.set(request.id, { client, requestId });
    this.#sentToPage(request.params['elicitationId'], client);
    const found = chosen.scope === undefined ? undefined : memberAt(request.paramsText, ['requestId']);
    const params = found ? splice(request.paramsText, [setValue(found, chosen.scope ?? '')]) : request.paramsText;
    client.send(requestText(requestId, request.method, params));
    client.kick();
  }

  /** The agent's `$/cancel_request`. False when the id is not one of these. */
  cancelByAgent(agentRequestId: string): boolean {
    const pending = this.#pending.get(agentRequestId);
    if (!pending) return false;
    this.#tellCancelled(pending.client, pending.requestId);
    return true;
  }

  /** `elicitation/complete` goes to whoever was sent to that page. @param params wire text */
  complete(elicitationId: unknown, params: string): void {
    if (typeof elicitationId !== 'string') return;
    const client = this.#pages.get(elicitationId);
    this.#pages.delete(elicitationId);
    if (client) {
      client.send(notificationText('elicitation/complete', params));
      client.kick();
      return;
    }
    for (const session of this.#options.registry.open()) {
      if (session.approvals.elicitations.complete(elicitationId, params)) return;
    }
  }

  agentExited(): void {
    for (const { client, requestId } of this.#pending.values()) {
      client.forget(requestId);
      this.#tellCancelled(client, requestId);
    }
    this.#pending.clear();
    this.#pages.clear();
  }

  #mostActive(can: (client: Client) => boolean): Chosen | undefined {
    let best: Connection | undefined;
    for (const connection of this.#options.connections) {
      if (!connection.initialized || connection.onlySessions || connection.role !== 'controller' || !can(connection))
        continue;
      if (!best || connection.lastActive > best.lastActive) best = connection;
    }
    return best && { client: best, scope: undefined };
  }

  #requester(agentId: string): Chosen | undefined {
    for (const connection of this.#options.connections) {
      for (const [scope, forwarded] of connection.forwarded) {
        if (forwarded === agentId) return { client: connection, scope };
      }
    }
    for (const session of this.#options.registry.open()) {
      const requester = session.turns.requesterOf(agentId);
      if (requester) return { client: requester.client, scope: requester.requestId };
    }
    return undefined;
  }

  #sentToPage(elicitationId: unknown, client: Client): void {
    if (typeof elicitationId !== 'string') return;
    this.#pages.set(elicitationId, client);
    for (const oldest of this.#pages.keys()) {
      if (this.#pages.size <= MAX_PAGES) break;
      this.#pages.delete(oldest);
    }
  }

  #tellCancelled(client: Client, requestId: string): void {
    client.send(notificationText('$/cancel_request', `{"requestId":${requestId}}`));
    client.kick();
  }
}
