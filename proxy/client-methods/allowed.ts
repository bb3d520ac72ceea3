/**
 * What a client whose token is limited to sessions may send. Other sessions do not exist for it: naming one is answered
 * as naming none. What acts on the whole process, makes sessions, or is not known to act on one session only, is refused.
 */
import type { ErrorKind } from '../../protocol/error.ts';
import { type NotificationMessage, type RequestMessage, paramsOf } from '../../protocol/json-rpc.ts';
import { members } from '../../protocol/wire-text.ts';
import { childRefusal, parentIdOf } from '../child-sessions.ts';
import type { Connection } from '../connection.ts';

export interface NotAllowed {
  readonly kind: ErrorKind;
  readonly detail?: string;
  readonly data?: Readonly<Record<string, unknown>>;
}

/** Fit without a session: they touch the connection only, or answer with the allowed sessions only. */
const WITHOUT_SESSION = new Set([
  'initialize',
  'session/list',
  '_sidecar/approvals',
  '_sidecar/ping',
  '$/cancel_request',
]);
/** Make a session that the token does not name. */
const MAKES_SESSIONS = new Set(['session/new', 'session/fork']);
/** May name a session that the log does not have yet. */
const IMPORTS = new Set(['session/load', 'session/resume', 'session/attach']);

/** Take the id of a child. */
const OF_CHILDREN = new Set(['session/load', 'session/resume']);

/** Undefined: it may. */
export function notAllowed(
  connection: Connection,
  message: RequestMessage | NotificationMessage,
): NotAllowed | undefined {
  const { onlySessions, house } = connection;
  if (!onlySessions) return undefined;
  const { method } = message;
  const { sessionId } = paramsOf(message);
  const detail = `${method} is not open to a token that is limited to sessions`;
  if (MAKES_SESSIONS.has(method)) return { kind: 'method_not_found', detail };
  if (sessionId === undefined) {
    return WITHOUT_SESSION.has(method) ? undefined : { kind: 'method_not_found', detail };
  }
  // A child is its parent's: who loads it is on that.
  const parent = parentIdOf(house, sessionId);
  if (typeof sessionId !== 'string' || !onlySessions.has(parent ?? sessionId)) {
    return { kind: 'unknown_session', data: { sessionId } };
  }
  // The agent may read the first of two, we read the last.
  const { params, wire } = message;
  if (params && members(wire, params.valueStart).filter(({ key }) => key === 'sessionId').length !== 1) {
    return { kind: 'invalid_params', detail: 'there must be one sessionId' };
  }
  if (parent !== undefined && !OF_CHILDREN.has(method)) {
    return { kind: 'invalid_params', detail: childRefusal(method, sessionId, parent), data: { sessionId, parent } };
  }
  const row = house.log.row(parent ?? sessionId);
  const known = row ? !row.tombstone : IMPORTS.has(method);
  // An id that is not in the log would reach the agent as it is, where it may name something else.
  return known ? undefined : { kind: 'unknown_session', data: { sessionId } };
}
