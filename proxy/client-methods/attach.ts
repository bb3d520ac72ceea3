/**
 * `session/load` and `session/resume`: served from the log. Load is attach and replay; resume replays only with a
 * cursor. Order on the wire: replay, open run, pending tool progress, response, pending approvals, live.
 */
import { type RequestMessage, errorText, notificationText, paramsOf, responseText } from '../../protocol/json-rpc.ts';
import { currentAnswer } from '../../protocol/v1/current-answer.ts';
import { stringifyWire, valueAt } from '../../protocol/wire-text.ts';
import type { Connection } from '../connection.ts';
import { resultFor } from '../session/client-view.ts';
import type { Session } from '../session/session.ts';
import { withSidecarMeta } from '../../protocol/sidecar-meta.ts';
import { importSession, mayImport } from '../agent/import-session.ts';
import { serversDigest } from '../kept-servers.ts';
import { factsOf, rememberServers } from './new-session.ts';
import { parentIdOf } from '../child-sessions.ts';
import { attachToChild } from './attach-child.ts';
import { replayStart } from './replay-start.ts';
import { attachAt, sessionOf } from './session-of.ts';

export function attachSession(connection: Connection, message: RequestMessage): void {
  const { sessionId, cwd } = paramsOf(message);
  const parentId = parentIdOf(connection.house, sessionId);
  if (parentId !== undefined) {
    attachToChild(connection, message, String(sessionId), parentId);
    return;
  }
  if (connection.role === 'controller' && typeof cwd === 'string' && mayImport(connection.house, sessionId)) {
    void importAndAttach(connection, message, sessionId, cwd);
    return;
  }
  const session = sessionOf(connection, message);
  if (!session) return;
  session.whenRepaired(() => attachNow(connection, message, session));
}

/** A session that only the agent knows comes into the log, and is then served from it. */
async function importAndAttach(
  connection: Connection,
  message: RequestMessage,
  sessionId: string,
  cwd: string,
): Promise<void> {
  const params = message.params ? message.wire.slice(message.params.valueStart, message.params.valueEnd) : '{}';
  const servers = valueAt(params, ['mcpServers']);
  const mcpServers = servers?.startsWith('[') ? servers : '[]';
  const place = { ...factsOf(paramsOf(message), cwd), mcpServers };
  const imported = await importSession(connection.house, sessionId, place);
  if (imported.outcome === 'imported') attachNow(connection, message, imported.session);
  else if (imported.outcome === 'failed') connection.send(errorText(message.id, imported.error));
  else connection.fail(message.id, 'unknown_session', undefined, { sessionId });
  connection.kick();
}

function attachNow(connection: Connection, message: RequestMessage, session: Session): void {
  if (!connection.open) return;
  rememberServers(connection, message, session);
  const start = replayStart(session, message);
  connection.house.metrics.replays.add([start.mode, start.reason ?? '']);
  const tip = session.order.tip;
  const attachment = attachAt(connection, session, start.position);
  if (start.mode === 'full') attachment.replayUntil = tip;
  const told = { sessionId: session.sessionId, mode: start.mode, reason: start.reason };
  if (connection.sidecar && start.mode !== 'none') {
    const params = {
      ...told,
      phase: 'begin',
      fromEventId: start.cursor ?? session.eventId(start.position),
      toEventId: session.eventId(tip),
    };
    const wire = notificationText('_sidecar/replay', stringifyWire(params));
    attachment.owe({ ...start.position, what: 'passing', wire });
  }
  session.intake.owePending(attachment);
  if (connection.sidecar && start.mode !== 'none') {
    const wire = notificationText(
      '_sidecar/replay',
      stringifyWire({ ...told, phase: 'end', toEventId: session.eventId(tip) }),
    );
    attachment.owe({ ...tip, what: 'passing', wire });
  }
  const sidecar = {
    mode: start.mode,
    reason: start.reason,
    eventId: session.eventId(tip),
    truncated: start.mode === 'full' && (session.row.low > 1 || session.state.pruned) ? true : undefined,
    turn: session.turns.status,
    approvals: session.approvals.pending,
    notApplied: notApplied(connection, message, session),
  };
  const result = withSidecarMeta(resultFor(connection, currentAnswer(session.state)), sidecar);
  attachment.owe({ ...tip, what: 'answer', wire: responseText(message.id, result), replayOf: message.id });
  session.attached(connection);
  connection.kick();
}

/** What of the request, or of the last binding, the live agent session does not have. */
function notApplied(connection: Connection, message: RequestMessage, session: Session): readonly string[] | undefined {
  const { cwd, mcpServers } = paramsOf(message);
  const names = [...session.notApplied];
  if (typeof cwd === 'string' && cwd !== session.row.cwd) names.push('cwd');
  const used = session.boundServers;
  if (session.agentSessionId !== undefined && Array.isArray(mcpServers) && used !== undefined) {
    const kept = connection.house.mcpServers.get(session.sessionId);
    if (kept === undefined || serversDigest(kept) !== used) names.push('mcpServers');
  }
  return names.length > 0 ? names : undefined;
}
