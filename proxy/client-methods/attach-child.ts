/**
 * `session/load` and `session/resume` of a child session: its updates are replayed from its parent's log, and from then
 * on the connection is on the parent. Where it stood there is kept, so that nothing of the parent comes twice.
 */
import { type RequestMessage, errorText, notificationText, responseText } from '../../protocol/json-rpc.ts';
import { withSidecarMeta } from '../../protocol/sidecar-meta.ts';
import { encodeWire, stringifyWire } from '../../protocol/wire-text.ts';
import type { Connection } from '../connection.ts';
import type { Session } from '../session/session.ts';
import { replayStart } from './replay-start.ts';

export function attachToChild(
  connection: Connection,
  message: RequestMessage,
  childId: string,
  parentId: string,
): void {
  const opened = connection.house.registry.get(parentId);
  if (!opened) connection.fail(message.id, 'unknown_session', undefined, { sessionId: childId });
  else if ('error' in opened) connection.send(errorText(message.id, stringifyWire(opened.error)));
  else opened.session.whenRepaired(() => attachNow(connection, message, childId, opened.session));
}

function attachNow(connection: Connection, message: RequestMessage, childId: string, parent: Session): void {
  if (!connection.open) return;
  const start = replayStart(parent, message);
  connection.house.metrics.replays.add([start.mode, start.reason ?? '']);
  const { tip } = parent.order;
  const child = encodeWire(childId);
  const attachment = parent.attachForChild(connection, child, start);
  connection.attach(parent, attachment);
  const told = { sessionId: childId, parent: parent.sessionId, mode: start.mode, reason: start.reason };
  const tellReplay = (phase: 'begin' | 'end'): void => {
    if (!connection.sidecar || start.mode === 'none') return;
    const at = phase === 'begin' ? start.position : tip;
    const fromEventId = phase === 'begin' ? (start.cursor ?? parent.eventId(start.position)) : undefined;
    const params = stringifyWire({ ...told, phase, fromEventId, toEventId: parent.eventId(tip) });
    attachment.owe({ ...at, what: 'passing', wire: notificationText('_sidecar/replay', params) });
  };
  tellReplay('begin');
  if (start.mode !== 'none') parent.intake.owePending(attachment, child);
  tellReplay('end');
  const sidecar = {
    parent: parent.sessionId,
    mode: start.mode,
    reason: start.reason,
    eventId: parent.eventId(tip),
    truncated: start.mode === 'full' && (parent.row.low > 1 || parent.state.pruned) ? true : undefined,
    turn: parent.turns.status,
    approvals: parent.approvals.pending,
  };
  // Modes and options are the parent's, and answered when that is loaded.
  const wire = responseText(message.id, withSidecarMeta('{}', sidecar));
  attachment.owe({ ...tip, what: 'answer', wire, replayOf: message.id });
  parent.attached(connection);
  connection.kick();
}
