/** Where the agent's messages go: updates and requests to their session, the rest to the clients. */
import { APPROVAL_METHODS } from '../../protocol/approval-answer.ts';
import { rpcError } from '../../protocol/error.ts';
import { type NotificationMessage, type RequestMessage, paramsOf, notificationText } from '../../protocol/json-rpc.ts';
import { methodOf } from '../../protocol/methods.ts';
import { memberAt, parseWire, setValue, splice, stringifyWire, valueAt } from '../../protocol/wire-text.ts';
import { BOUNDS, MAX_AGENT_REQUESTS, MAX_PENDING_APPROVALS, boundHit } from '../bounds.ts';
import type { Connection } from '../connection.ts';
import type { Logger } from '../log.ts';
import type { Metrics } from '../metrics.ts';
import type { Registry } from '../registry.ts';
import { type AgentRequest, errorAnswer } from '../session/agent-request.ts';
import type { AcceptedText, IncomingUpdate } from '../session/intake.ts';
import type { Session } from '../session/session.ts';
import type { AgentHandler, AgentLink } from './agent-link.ts';
import { OutsideRequests } from './outside-requests.ts';

function tooMany(session: Session, method: string): boolean {
  if (APPROVAL_METHODS.has(method)) return session.approvals.pending >= MAX_PENDING_APPROVALS;
  return session.clientRequests.pending >= MAX_AGENT_REQUESTS;
}

export interface AgentEventsOptions {
  readonly registry: Registry;
  readonly connections: ReadonlySet<Connection>;
  readonly logger: Logger;
  readonly metrics: Pick<Metrics, 'messageDropped'>;
  readonly link: () => AgentLink | undefined;
}

export class AgentEvents implements AgentHandler {
  readonly #options: AgentEventsOptions;
  readonly #outside: OutsideRequests;

  constructor(options: AgentEventsOptions) {
    this.#options = options;
    this.#outside = new OutsideRequests(options);
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
    const session = typeof sessionId === 'string' ? this.#options.registry.ownerOf(sessionId) : undefined;
    if (session) {
      if (tooMany(session, message.method)) {
        const limit = APPROVAL_METHODS.has(message.method) ? 'approvals' : 'agent_requests';
        boundHit(limit);
        errorAnswer(request, rpcError('limit_reached', BOUNDS[limit].limit, { limit }));
      } else if (APPROVAL_METHODS.has(message.method)) session.approvals.ask(request);
      else session.clientRequests.ask(request);
    } else if (typeof sessionId === 'string') {
      errorAnswer(request, rpcError('unknown_session', undefined, { sessionId }));
    } else if (methodOf('agent', message.method)?.scope === 'session' && params['requestId'] === undefined) {
      errorAnswer(request, rpcError('invalid_params', `${message.method} needs a sessionId`));
    } else this.#outside.ask(request);
  }

  notification(message: NotificationMessage): void {
    if (message.method === '$/cancel_request') {
      this.#cancel(message);
      return;
    }
    const params = message.params ? message.wire.slice(message.params.valueStart, message.params.valueEnd) : '{}';
    const { sessionId, elicitationId } = paramsOf(message);
    const session = typeof sessionId === 'string' ? this.#options.registry.byAgentId(sessionId) : undefined;
    if (message.method === 'elicitation/complete') {
      // One that names a session, which ACP's do not, is about that one's page only.
      if (sessionId === undefined) this.#outside.complete(elicitationId, params);
      else if (typeof elicitationId === 'string') session?.approvals.elicitations.complete(elicitationId, params);
      return;
    }
    if (session) {
      const found = memberAt(params, ['sessionId']);
      const own = session.agentSessionId === sessionId;
      const shown = found && own ? splice(params, [setValue(found, stringifyWire(session.sessionId))]) : params;
      session.notifyClients(notificationText(message.method, shown));
      return;
    }
    if (typeof sessionId === 'string' && !this.#options.registry.mayBeNew(sessionId)) {
      // It is about a session, so it is not for everybody.
      this.#options.metrics.messageDropped('agent_unknown_session');
      this.#options.logger.warn({ method: message.method.slice(0, 80) }, 'a notification for an unknown session');
      return;
    }
    for (const connection of this.#options.connections) {
      // What names no session may be about any; a token that is limited to some is not shown it.
      if (!connection.initialized || connection.onlySessions) continue;
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

  /** The process is gone: what clients are still asked outside of sessions is nobody's question any more. */
  agentExited(): void {
    this.#outside.agentExited();
  }

  readDone(): void {
    // Sessions have said what they need; the server acts on it at the end of this tick.
  }

  #cancel(message: NotificationMessage): void {
    const requestId = valueAt(message.wire, ['params', 'requestId']);
    const link = this.#options.link();
    if (requestId === undefined || !link) return;
    for (const session of this.#options.registry.open()) {
      if (session.approvals.cancelByAgent(requestId, link) || session.clientRequests.cancelByAgent(requestId)) return;
    }
    this.#outside.cancelByAgent(requestId);
  }
}
