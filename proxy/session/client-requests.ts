/**
 * Requests of the agent that act on one client: `fs/*`, `terminal/*` and custom ones. Exactly one client gets each; a
 * terminal stays with the client that created it; nothing waits for ever.
 */
import { rpcError } from '../../protocol/error.ts';
import { type ResponseMessage, isObject, requestText, withId } from '../../protocol/json-rpc.ts';
import { advertises, capabilityFor } from '../../protocol/methods.ts';
import { memberAt, setValue, splice, stringifyWire } from '../../protocol/wire-text.ts';
import { type AgentRequest, errorAnswer } from './agent-request.ts';
import type { Client } from './client.ts';
import type { Session } from './session.ts';

interface Pending {
  readonly request: AgentRequest;
  readonly client: Client;
  readonly requestId: string;
}

export class ClientRequests {
  readonly #session: Session;
  readonly #pending = new Map<string, Pending>();
  /** Who owns a terminal, by its id. */
  readonly #terminals = new Map<string, Client>();

  constructor(session: Session) {
    this.#session = session;
  }

  get pending(): number {
    return this.#pending.size;
  }

  ask(request: AgentRequest): void {
    const client = this.#choose(request);
    if (!client) {
      const detail = `no attached client can answer ${request.method}`;
      errorAnswer(request, { ...rpcError('method_not_found', detail), code: -32601 });
      return;
    }
    const requestId = client.expect((answer) => this.#answered(request, client, answer));
    this.#pending.set(request.id, { request, client, requestId });
    client.send(requestText(requestId, request.method, this.#publicParams(request.paramsText)));
    client.kick();
  }

  /** The agent's `$/cancel_request`. False when the id is not one of these. */
  cancelByAgent(agentRequestId: string): boolean {
    const pending = this.#pending.get(agentRequestId);
    if (!pending) return false;
    const params = `{"requestId":${pending.requestId}}`;
    pending.client.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":${params}}`);
    pending.client.kick();
    return true;
  }

  /** Its requests get their error now; its terminals are gone. */
  clientLeft(client: Client): void {
    for (const pending of this.#pending.values()) {
      if (pending.client !== client) continue;
      client.forget(pending.requestId);
      this.#lost(pending.request, client);
    }
    for (const [terminalId, owner] of this.#terminals) if (owner === client) this.#terminals.delete(terminalId);
  }

  agentExited(): void {
    for (const { client, requestId } of this.#pending.values()) {
      client.forget(requestId);
      client.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":${requestId}}}`);
      client.kick();
    }
    this.#pending.clear();
    this.#terminals.clear();
  }

  #answered(request: AgentRequest, client: Client, answer: ResponseMessage | 'gone'): void {
    if (answer === 'gone') {
      this.#lost(request, client);
      return;
    }
    this.#pending.delete(request.id);
    const result = answer.value['result'];
    if (request.method === 'terminal/create' && isObject(result) && typeof result['terminalId'] === 'string') {
      const owner = this.#terminals.get(result['terminalId']);
      if (owner && owner !== client) {
        errorAnswer(request, rpcError('invalid_params', 'the client used the id of another client’s live terminal'));
        return;
      }
      this.#terminals.set(result['terminalId'], client);
    }
    if (request.method === 'terminal/release') this.#terminals.delete(String(request.params['terminalId']));
    request.agent.respond(withId(answer, request.id));
  }

  #lost(request: AgentRequest, client: Client): void {
    if (!this.#pending.delete(request.id)) return;
    this.#session.logger.info({ clientId: client.clientId, method: request.method }, 'client left with a request open');
    errorAnswer(request, rpcError('internal', 'the client that had this request is gone; its outcome is not known'));
  }

  /** The owner of the terminal; else the driver if it can; else the most recently active that can. */
  #choose(request: AgentRequest): Client | undefined {
    const terminalId = request.params['terminalId'];
    if (request.method.startsWith('terminal/') && typeof terminalId === 'string') {
      const owner = this.#terminals.get(terminalId);
      if (owner) return owner;
    }
    const capability = capabilityFor(request.method, request.params);
    const can = (client: Client): boolean =>
      client.open &&
      client.role === 'controller' &&
      this.#session.clients.has(client) &&
      (capability === undefined || advertises(client.capabilities, capability));
    const driver = this.#session.turns.current?.client;
    if (driver && can(driver)) return driver;
    let best: Client | undefined;
    for (const client of this.#session.clients.keys()) {
      if (can(client) && (!best || client.lastActive > best.lastActive)) best = client;
    }
    return best;
  }

  #publicParams(params: string): string {
    const found = memberAt(params, ['sessionId']);
    return found ? splice(params, [setValue(found, stringifyWire(this.#session.sessionId))]) : params;
  }
}
