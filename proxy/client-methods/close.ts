/**
 * `session/close`: while others are on the session it only detaches; the last one's ends what runs and reaches the
 * agent. The log stays. `session/delete` takes the log away, for everyone.
 */
import { type RequestMessage, isObject, responseText } from '../../protocol/json-rpc.ts';
import { parseWire } from '../../protocol/wire-text.ts';
import type { Connection } from '../connection.ts';
import type { Session } from '../session/session.ts';
import { stringifyWire } from '../../protocol/wire-text.ts';
import { sessionOf } from './session-of.ts';

export function closeSession(connection: Connection, message: RequestMessage): void {
  const session = sessionOf(connection, message);
  if (!session) return;
  const last = [...session.clients.keys()].every((client) => client === connection);
  const done = (): void => {
    connection.detach(session);
    connection.send(responseText(message.id, '{}'));
    connection.kick();
  };
  if (!last) {
    done();
    return;
  }
  session.turns.cancel();
  session.record({ type: 'session_closed', payload: '{}' }, { settled: done, refused: done });
  tellAgent(connection, session, 'close');
}

export function deleteSession(connection: Connection, message: RequestMessage): void {
  const session = sessionOf(connection, message);
  if (!session) return;
  session.turns.cancel();
  tellAgent(connection, session, 'delete');
  connection.house.registry.remove(session, (outcome) => {
    if (outcome === undefined) connection.send(responseText(message.id, '{}'));
    else connection.fail(message.id, 'not_persisted', outcome);
    connection.kick();
  });
}

/** The agent's part, when it is bound and knows the method. Its answer changes nothing here. */
function tellAgent(connection: Connection, session: Session, what: 'close' | 'delete'): void {
  const { agentHost, registry } = connection.house;
  const { agentSessionId } = session;
  const stored = agentHost.storedAnswer;
  if (agentSessionId === undefined || stored === undefined || !agentHost.link) return;
  const value = parseWire(stored);
  const capabilities = isObject(value) && isObject(value['agentCapabilities']) ? value['agentCapabilities'] : {};
  const known = isObject(capabilities['sessionCapabilities']) ? capabilities['sessionCapabilities'] : {};
  if (!isObject(known[what])) return;
  session.holds++;
  agentHost.link.request(`session/${what}`, stringifyWire({ sessionId: agentSessionId }), () => {
    session.holds--;
    if (session.agentSessionId !== agentSessionId || session.turns.current) return;
    session.agentSessionId = undefined;
    registry.unroute(agentSessionId);
    agentHost.link?.dropTemplates();
  });
}
