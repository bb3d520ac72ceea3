/** Where the agent's messages go: updates and requests to their session, the rest to the clients. */
import { rpcError } from '../../protocol/error.ts';
import {
  type NotificationMessage,
  type RequestMessage,
  paramsOf,
  requestText,
  notificationText,
  withId,
} from '../../protocol/json-rpc.ts';
import { memberAt, parseWire, setValue, splice, stringifyWire, valueAt } from '../../protocol/wire-text.ts';
import type { Connection } from '../connection.ts';
import type { Logger } from '../log.ts';
import type { Registry } from '../registry.ts';
import { type AgentRequest, errorAnswer } from '../session/agent-request.ts';
import type { AcceptedText, IncomingUpdate } from '../session/intake.ts';
import type { Session } from '../session/session.ts';
import type { AgentHandler, AgentLink } from './agent-link.ts';

export interface AgentEventsOptions {
  readonly registry: Registry;
  readonly connections: ReadonlySet<Connection>;
  readonly logger: Logger;
  readonly link: () => AgentLink | undefined;
}

const APPROVALS = new Set(['session/request_permission', 'elicitation/create']);

export class AgentEvents implements AgentHandler {
  readonly #options: AgentEventsOptions;
  /** Requests that went to a client outside of any session: the client and its request id, by the agent's id. */
  readonly #outside = new Map<string, { connection: Connection; requestId: string }>();

  constructor(options: AgentEventsOptions) {
    this.#options = options;
  }

  update(agentSessionId: string, update: IncomingUpdate): { session: Session; text: AcceptedText } | undefined {
    return this.#options.registry.update(agentSessionId, update);
  }

  request(message: RequestMessage): void {
    const link = this.#options.link();
    if (!link) return;
    const paramsText = message.params ? message.wire.slice(message.params.valueStart, message.params.valueEnd) : '{}';
    const params = paramsOf(message);
    const request: AgentRequest = { id: message.id, method: message.method, params, paramsText, agent: link };
    const { sessionId } = params;
    const session = typeof sessionId === 'string' ? this.#options.registry.byAgentId(sessionId) : undefined;
    if (session) {
      if (APPROVALS.has(message.method)) session.approvals.ask(request);
      else session.clientRequests.ask(request);
    } else if (typeof sessionId === 'string') {
      errorAnswer(request, rpcError('unknown_session', undefined, { sessionId }));
    } else this.#askOutside(request);
  }

  notification(message: NotificationMessage): void {
    if (message.method === '$/cancel_request') {
      this.#cancel(message);
      return;
    }
    const params = message.params ? message.wire.slice(message.params.valueStart, message.params.valueEnd) : '{}';
    const { sessionId } = paramsOf(message);
    const session = typeof sessionId === 'string' ? this.#options.registry.byAgentId(sessionId) : undefined;
    if (session) {
      const found = memberAt(params, ['sessionId']);
      const own = session.agentSessionId === sessionId;
      const shown = found && own ? splice(params, [setValue(found, stringifyWire(session.sessionId))]) : params;
      session.notifyClients(notificationText(message.method, shown));
      return;
    }
    for (const connection of this.#options.connections) {
      if (!connection.initialized) continue;
      connection.send(notificationText(message.method, params));
      connection.kick();
    }
  }

  oversized(head: string, bytes: number): void {
    const sessionId = valueAt(head, ['params', 'sessionId']);
    const id: unknown = sessionId !== undefined && /^"[^"\\]*"$/.test(sessionId) ? parseWire(sessionId) : undefined;
    const session = typeof id === 'string' ? this.#options.registry.byAgentId(id) : undefined;
    const text = `A message of ${bytes} bytes from the agent was over --max-message-bytes and was not kept.`;
    session?.record({
      type: 'missing',
      payload: stringifyWire({ reason: 'message_too_large', bytes, text }),
      synthetic: true,
    });
  }

  readDone(): void {
    // Sessions have said what they need; the server acts on it at the end of this tick.
  }

  /** A request that names no session: to the requester it belongs to, else to the most recently active controller. */
  #askOutside(request: AgentRequest): void {
    const scope = request.method === 'elicitation/create' ? valueAt(request.paramsText, ['requestId']) : undefined;
    let chosen: { connection: Connection; requestId: string } | undefined;
    for (const connection of this.#options.connections) {
      if (!connection.initialized || connection.role !== 'controller') continue;
      if (scope !== undefined) {
        for (const [clientId, agentId] of connection.forwarded) {
          if (agentId === scope) chosen = { connection, requestId: clientId };
        }
      } else if (!chosen || connection.lastActive > chosen.connection.lastActive)
        chosen = { connection, requestId: '' };
    }
    if (!chosen) {
      errorAnswer(request, rpcError('method_not_found', `no client can answer ${request.method}`));
      return;
    }
    const { connection } = chosen;
    const requestId = connection.expect((answer) => {
      this.#outside.delete(request.id);
      if (answer === 'gone') errorAnswer(request, rpcError('internal', 'the client that had this request is gone'));
      else request.agent.respond(withId(answer, request.id));
    });
    this.#outside.set(request.id, { connection, requestId });
    const found = scope === undefined ? undefined : memberAt(request.paramsText, ['requestId']);
    const params = found ? splice(request.paramsText, [setValue(found, chosen.requestId)]) : request.paramsText;
    connection.send(requestText(requestId, request.method, params));
    connection.kick();
  }

  #cancel(message: NotificationMessage): void {
    const requestId = valueAt(message.wire, ['params', 'requestId']);
    if (requestId === undefined) return;
    for (const session of this.#options.registry.open()) {
      if (session.approvals.cancelByAgent(requestId) || session.clientRequests.cancelByAgent(requestId)) return;
    }
    const outside = this.#outside.get(requestId);
    if (!outside) return;
    outside.connection.send(notificationText('$/cancel_request', `{"requestId":${outside.requestId}}`));
    outside.connection.kick();
  }
}
