/** `_sidecar/approvals`: what waits for an answer, in one session or in all of them. */
import { settledId } from '../../protocol/event-id.ts';
import { type RequestMessage, paramsOf, responseText } from '../../protocol/json-rpc.ts';
import { stringifyWire } from '../../protocol/wire-text.ts';
import type { Connection } from '../connection.ts';
import type { PendingApproval } from '../session/approvals.ts';
import type { Session } from '../session/session.ts';
import { sessionOf } from './session-of.ts';

export function sidecarApprovals(connection: Connection, message: RequestMessage): void {
  const { sessionId } = paramsOf(message);
  if (sessionId !== undefined && typeof sessionId !== 'string') {
    connection.fail(message.id, 'invalid_params', 'sessionId must be a string');
    return;
  }
  const session = sessionId === undefined ? undefined : sessionOf(connection, message);
  if (sessionId !== undefined && !session) return;
  // Only a session that is open can have an agent that waits.
  const { onlySessions, house } = connection;
  const seen = (entry: Session): boolean => onlySessions?.has(entry.sessionId) ?? true;
  const sessions = session ? [session] : [...house.registry.open()].filter(seen);
  const approvals = sessions.flatMap((entry) => entry.approvals.list().map((approval) => shown(entry, approval)));
  connection.send(responseText(message.id, `{"approvals":[${approvals.join(',')}]}`));
}

function shown(session: Session, approval: PendingApproval): string {
  const { approvalId, turnId, toolCallId, seq, method, paramsText, reopened } = approval;
  const facts = {
    approvalId,
    sessionId: session.sessionId,
    eventId: settledId(session.envelope.logId, seq),
    state: reopened ? 'reopened' : 'pending',
    turnId,
    toolCallId,
    method,
  };
  return `${stringifyWire(facts).slice(0, -1)},"params":${paramsText}}`;
}
