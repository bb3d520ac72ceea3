/** `session/cancel` and `$/cancel_request` of clients. */
import { type NotificationMessage, paramsOf } from '../../protocol/json-rpc.ts';
import { valueAt } from '../../protocol/wire-text.ts';
import { parentIdOf } from '../child-sessions.ts';
import type { Connection } from '../connection.ts';
import { passNotification } from './pass.ts';
import { sessionOf } from './session-of.ts';

export function cancelSession(connection: Connection, message: NotificationMessage): void {
  const { sessionId } = paramsOf(message);
  if (typeof sessionId !== 'string') return;
  // A child's turn is the agent's own: it is not in the log, and ending it does not end the parent's.
  if (parentIdOf(connection.house, sessionId) !== undefined) passNotification(connection, message);
  else sessionOf(connection, message)?.turns.cancel();
}

/** The id is one of this client's own requests: of a prompt, or of a request that has been passed on. */
export function cancelRequest(connection: Connection, message: NotificationMessage): void {
  if (!message.params) return;
  const params = message.wire.slice(message.params.valueStart, message.params.valueEnd);
  const requestId = valueAt(params, ['requestId']);
  if (requestId === undefined) return;
  for (const session of connection.sessions.keys()) if (session.turns.cancelRequest(connection, requestId)) return;
  const agentId = connection.forwarded.get(requestId);
  if (agentId !== undefined) connection.house.agentHost.link?.notify('$/cancel_request', `{"requestId":${agentId}}`);
}
