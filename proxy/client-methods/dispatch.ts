/**
 * What a client asks for, by method. A method that is not ours passes to the agent with the id rewritten; its answer
 * comes back with the client's id, byte for byte.
 */
import { type NotificationMessage, type RequestMessage, paramsOf, responseText } from '../../protocol/json-rpc.ts';
import { methodOf } from '../../protocol/methods.ts';
import type { Connection } from '../connection.ts';
import { BOUNDS, type BoundName, MAX_ATTACHMENTS, MAX_CLIENT_REQUESTS, boundHit } from '../bounds.ts';
import { notAllowed } from './allowed.ts';
import { authenticate } from './authenticate.ts';
import { cancelRequest, cancelSession } from './cancel.ts';
import { initialize } from './initialize.ts';
import { passNotification, passRequest } from './pass.ts';
import { promptSession } from './prompt.ts';
import { sidecarEvents, sidecarHistory, sidecarStatus } from './extension.ts';
import { closeSession, deleteSession } from './close.ts';
import { listSessions } from './list.ts';
import { forkSession } from './fork.ts';
import { attachSession } from './attach.ts';
import { newSession } from './new-session.ts';
import { sidecarApprovals } from './pending-approvals.ts';
import { attachToSession, detachFromSession } from './session-attach.ts';
import { setModeOrOption } from './set-option.ts';

type RequestHandler = (connection: Connection, message: RequestMessage) => void;

const REQUESTS: Readonly<Record<string, RequestHandler>> = {
  initialize,
  authenticate,
  logout: authenticate,
  'session/new': newSession,
  'session/load': attachSession,
  'session/resume': attachSession,
  'session/list': listSessions,
  'session/prompt': promptSession,
  'session/set_mode': setModeOrOption,
  'session/set_config_option': setModeOrOption,
  'session/close': closeSession,
  'session/delete': deleteSession,
  'session/fork': forkSession,
  '_sidecar/history': sidecarHistory,
  'session/attach': attachToSession,
  'session/detach': detachFromSession,
  '_sidecar/events': sidecarEvents,
  '_sidecar/approvals': sidecarApprovals,
  '_sidecar/status': sidecarStatus,
  // A sign of life for clients whose platform shows them no WebSocket pings.
  '_sidecar/ping': (connection, message) => connection.send(responseText(message.id, '{}')),
};

/** By its token, by its own wish, or in this session only. */
function isObserver(connection: Connection, message: RequestMessage | NotificationMessage): boolean {
  const { sessionId } = paramsOf(message);
  return connection.role === 'observer' || (typeof sessionId === 'string' && connection.observing.has(sessionId));
}

export function receiveRequest(connection: Connection, message: RequestMessage): void {
  const { method, id } = message;
  if (!connection.initialized && method !== 'initialize') {
    connection.fail(id, 'invalid_request', `send initialize before ${method}`);
    return;
  }
  const spec = methodOf('client', method);
  if (spec?.refused) {
    connection.fail(id, 'method_not_found', `${method} is for another kind of peer`);
    return;
  }
  const refused = notAllowed(connection, message);
  if (refused) {
    connection.fail(id, refused.kind, refused.detail, refused.data);
    return;
  }
  if (isObserver(connection, message) && spec?.role !== 'observer') {
    connection.fail(id, 'observer', method);
    return;
  }
  const everywhere = method === '_sidecar/approvals' && paramsOf(message)['sessionId'] === undefined;
  if (spec?.scope === 'session' && !everywhere && typeof paramsOf(message)['sessionId'] !== 'string') {
    connection.fail(id, 'invalid_params', `${method} needs a sessionId that is a string`);
    return;
  }
  const limit = limitOf(connection, message);
  if (limit) {
    boundHit(limit);
    connection.fail(id, 'limit_reached', BOUNDS[limit].limit, { limit });
    return;
  }
  if (connection.house.requestMemory.repeated(connection, message)) return;
  const handler = Object.hasOwn(REQUESTS, method) ? REQUESTS[method] : undefined;
  if (!handler && connection.role === 'observer' && spec?.answeredBy === 'sidecar') {
    // Passed on, it would wake the agent and bind the session there.
    connection.fail(id, 'method_not_found', method);
    return;
  }
  (handler ?? passRequest)(connection, message);
}

/** What this client has too much of. */
function limitOf(connection: Connection, message: RequestMessage): BoundName | undefined {
  if (connection.forwarded.size + connection.asking >= MAX_CLIENT_REQUESTS) return 'client_requests';
  const { sessionId } = paramsOf(message);
  // A method that we do not know is for a session when it names one.
  const scope = methodOf('client', message.method)?.scope ?? (typeof sessionId === 'string' ? 'session' : undefined);
  if (connection.sessions.size < MAX_ATTACHMENTS || scope !== 'session') return undefined;
  for (const session of connection.sessions.keys()) if (session.sessionId === sessionId) return undefined;
  return 'attachments';
}

export function receiveNotification(connection: Connection, message: NotificationMessage): void {
  const { method } = message;
  if (!connection.initialized) return;
  const spec = methodOf('client', method);
  if (notAllowed(connection, message)) {
    connection.house.metrics.messageDropped('not_allowed');
    connection.house.logger.warn({ method: method.slice(0, 80), connection: connection.id }, 'not allowed: dropped');
  } else if (method === '$/cancel_request') cancelRequest(connection, message);
  else if (isObserver(connection, message) && spec?.role !== 'observer') {
    connection.house.metrics.messageDropped('observer');
    connection.house.logger.warn({ method: method.slice(0, 80), clientId: connection.clientId }, 'observer: dropped');
  } else if (method === 'session/cancel') cancelSession(connection, message);
  else passNotification(connection, message);
}
