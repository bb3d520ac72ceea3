/** The session that a client's message names. */
import { type NotificationMessage, type RequestMessage, errorText, paramsOf } from '../../protocol/json-rpc.ts';
import { stringifyWire } from '../../protocol/wire-text.ts';
import { childRefusal, parentIdOf } from '../child-sessions.ts';
import type { Connection } from '../connection.ts';
import type { AttachOptions, Attachment } from '../session/attachment.ts';
import type { Position } from '../../protocol/event-id.ts';
import type { Session } from '../session/session.ts';

/** The session, or undefined when the client has been told why not. */
export function sessionOf(connection: Connection, message: RequestMessage | NotificationMessage): Session | undefined {
  const { sessionId } = paramsOf(message);
  const opened = typeof sessionId === 'string' ? connection.house.registry.get(sessionId) : undefined;
  if (opened && 'session' in opened) return opened.session;
  if (message.kind === 'request') {
    const parent = opened ? undefined : parentIdOf(connection.house, sessionId);
    if (opened) connection.send(errorText(message.id, stringifyWire(opened.error)));
    else if (parent !== undefined) {
      const detail = childRefusal(message.method, String(sessionId), parent);
      connection.fail(message.id, 'invalid_params', detail, { sessionId, parent });
    } else connection.fail(message.id, 'unknown_session', undefined, { sessionId });
  }
  return undefined;
}

/** Puts the connection on the session at a position. */
export function attachAt(
  connection: Connection,
  session: Session,
  position: Position,
  options: AttachOptions = {},
): Attachment {
  const attachment = session.attach(connection, position, options);
  connection.attach(session, attachment);
  return attachment;
}

/** A request for a session that the connection is not on attaches it first, as `session/resume` without a cursor. */
export function ensureAttached(connection: Connection, session: Session): Attachment {
  const known = connection.sessions.get(session);
  if (known) return known;
  const tip = session.order.tip;
  const attachment = attachAt(connection, session, tip);
  session.intake.owePending(attachment);
  session.attached(connection);
  return attachment;
}
