/**
 * `session/attach` and `session/detach` of ACP's RFD #533 (multi-client session attach).
 *
 *   historyPolicy   replayed                      pending approvals
 *   full            everything                    asked
 *   after_message   what follows a message        asked
 *   after_event     what follows an eventId       asked
 *   pending_only    nothing                       asked
 *   none            nothing                       only those that come later
 *
 * The history comes in the response, as `session/update` params; when it is long it comes as notifications before the
 * response, as `session/load` sends it. The policy that was applied is echoed: a cursor or message that is not known
 * makes it `full`.
 */
import type { Position } from '../../protocol/event-id.ts';
import { type JsonObject, type RequestMessage, errorText, paramsOf, responseText } from '../../protocol/json-rpc.ts';
import { currentAnswer } from '../../protocol/v1/current-answer.ts';
import { addMember, splice, stringifyWire, valueAt } from '../../protocol/wire-text.ts';
import { decodeRecord, typeCode, updateKind } from '../../storage/event-codec.ts';
import { TEXT_KINDS } from '../../protocol/v1/update-kinds.ts';
import { EVENT_TYPES } from '../../protocol/event.ts';
import { resolveCursor } from '../../storage/cursor.ts';
import type { Connection } from '../connection.ts';
import { Attachment } from '../session/attachment.ts';
import { resultFor } from '../session/client-view.ts';
import { clientKey } from '../session/presence.ts';
import { pump } from '../session/pump.ts';
import type { Session } from '../session/session.ts';
import { withSidecarMeta } from '../../protocol/sidecar-meta.ts';
import { captureOutbox } from './capture-outbox.ts';
import { attachAt, sessionOf } from './session-of.ts';

type HistoryPolicy = 'full' | 'pending_only' | 'none' | 'after_message' | 'after_event';
const POLICIES: ReadonlySet<unknown> = new Set(['full', 'pending_only', 'none', 'after_message', 'after_event']);

/** A longer history comes as notifications. */
const MAX_HISTORY_BYTES = 1024 * 1024;

interface Start {
  readonly policy: HistoryPolicy;
  readonly position: Position;
}

export function attachToSession(connection: Connection, message: RequestMessage): void {
  const params = paramsOf(message);
  const { historyPolicy = 'full', role } = params;
  if (!POLICIES.has(historyPolicy)) {
    connection.fail(message.id, 'invalid_params', `historyPolicy must be one of ${[...POLICIES].join(', ')}`);
    return;
  }
  if (role !== undefined && role !== 'controller' && role !== 'observer') {
    connection.fail(message.id, 'invalid_params', 'role must be "controller" or "observer"');
    return;
  }
  if (role === 'controller' && connection.role === 'observer') {
    connection.fail(message.id, 'observer', 'session/attach as controller');
    return;
  }
  const session = sessionOf(connection, message);
  if (!session) return;
  session.whenRepaired(() => {
    if (connection.open) attachNow(connection, message, session, historyPolicy as HistoryPolicy);
  });
}

export function detachFromSession(connection: Connection, message: RequestMessage): void {
  const session = sessionOf(connection, message);
  if (!session) return;
  connection.detach(session);
  connection.observing.delete(session.sessionId);
  connection.send(responseText(message.id, stringifyWire({ sessionId: session.sessionId })));
}

function attachNow(connection: Connection, message: RequestMessage, session: Session, asked: HistoryPolicy): void {
  const params = paramsOf(message);
  const tip = session.order.tip;
  const start = startOf(session, params, asked);
  const observer = params['role'] === 'observer';
  const asksFrom = start.policy === 'none' ? session.order.lastSeq + 1 : 0;
  const options = { rfd: true, observer, asksFrom };
  if (observer) connection.observing.add(session.sessionId);
  else connection.observing.delete(session.sessionId);
  const history = historyFrom(connection, session, start, tip);
  if (session.damage) {
    connection.send(errorText(message.id, stringifyWire(session.damage)));
    return;
  }
  const attachment = attachAt(connection, session, history ? tip : start.position, options);
  if (!history && start.policy === 'full') attachment.replayUntil = tip;
  session.intake.owePending(attachment);
  const result = resultOf(connection, session, start.policy, history ?? [], tip);
  attachment.owe({ ...tip, what: 'answer', wire: responseText(message.id, result), replayOf: message.id });
  session.attached(connection);
  connection.kick();
}

function resultOf(
  connection: Connection,
  session: Session,
  policy: HistoryPolicy,
  history: readonly string[],
  tip: Position,
): string {
  const facts: Readonly<Record<string, string>> = {
    history: `[${history.join(',')}]`,
    connectedClients: stringifyWire(
      [...session.clients].map(([client, { observer }]) => ({
        clientId: clientKey(client),
        name: client.name,
        role: observer ? 'observer' : client.role,
      })),
    ),
    historyPolicy: stringifyWire(policy),
    clientId: stringifyWire(clientKey(connection)),
    sessionId: stringifyWire(session.sessionId),
  };
  let result = resultFor(connection, currentAnswer(session.state));
  for (const [key, value] of Object.entries(facts)) result = splice(result, [addMember(result, 0, key, value)]);
  const sidecar = {
    eventId: session.eventId(tip),
    turn: session.turns.status,
    approvals: session.approvals.pending,
  };
  return withSidecarMeta(result, sidecar);
}

function startOf(session: Session, params: JsonObject, asked: HistoryPolicy): Start {
  const { order, row } = session;
  const beginning: Start = { policy: 'full', position: { seq: row.low - 1, offset: 0 } };
  switch (asked) {
    case 'full':
      return beginning;
    case 'pending_only':
    case 'none':
      return { policy: asked, position: order.tip };
    case 'after_event': {
      const { front } = order;
      const openRun = front && { seq: order.head + 1, length: front.length };
      const cursor = params['afterEventId'];
      const resolved = resolveCursor({ log: session.log, row, boot: session.boot, cursor, openRun });
      return 'ok' in resolved ? { policy: asked, position: resolved.ok } : beginning;
    }
    case 'after_message': {
      const seq = lastOfMessage(session, params['afterMessageId']);
      return seq === undefined ? beginning : { policy: asked, position: { seq, offset: 0 } };
    }
    default:
      return beginning;
  }
}

/** Seq of the last event of a message: a prompt's turnId, or the messageId of the agent's chunks. */
function lastOfMessage(session: Session, messageId: unknown): number | undefined {
  if (typeof messageId !== 'string') return undefined;
  const wanted = stringifyWire(messageId);
  let found: number | undefined;
  session.log.scan(session.order.num, session.row.low, session.order.head, (seq, record, length) => {
    const type = typeCode(record);
    const isText = type === EVENT_TYPES.update && TEXT_KINDS.has(updateKind(record));
    if (!isText && type !== EVENT_TYPES.turn_started) return true;
    const event = decodeRecord(record, length, seq, false);
    if ('unreadable' in event) return true;
    const id = isText ? valueAt(event.payload, ['messageId']) : stringifyWire(event.turnId ?? '');
    if (id === wanted) found = seq;
    return true;
  });
  return found;
}

/** The params of every update from a position to the tip, or undefined when they are too many for one response. */
function historyFrom(
  connection: Connection,
  session: Session,
  start: Start,
  tip: Position,
): readonly string[] | undefined {
  if (start.policy === 'pending_only' || start.policy === 'none') return [];
  const reader = new Attachment(start.position, connection);
  reader.rfd = true;
  reader.prefetched = Number.MAX_SAFE_INTEGER;
  if (start.policy === 'full') reader.replayUntil = tip;
  const outbox = captureOutbox(MAX_HISTORY_BYTES);
  for (;;) {
    const pumped = pump(session, reader, outbox, MAX_HISTORY_BYTES, () => undefined);
    if (outbox.total >= MAX_HISTORY_BYTES || (pumped !== 'tip' && pumped !== 'turn')) return undefined;
    if (pumped === 'tip') break;
  }
  return outbox.messages().flatMap((wire) => {
    const isUpdate = valueAt(wire, ['method']) === '"session/update"';
    return (isUpdate && valueAt(wire, ['params'])) || [];
  });
}
