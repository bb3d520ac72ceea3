/**
 * `session/close`: while others are on the session it only detaches; the last one's ends what runs, and then the agent's
 * part. The log stays, and the session can be loaded again. `session/delete` takes the log away, for everyone.
 */
import { type RequestMessage, responseText } from '../../protocol/json-rpc.ts';
import { stringifyWire } from '../../protocol/wire-text.ts';
import { agentCan, leaveAgent } from '../agent/leave-agent.ts';
import type { Connection } from '../connection.ts';
import { sweep } from '../control/store-host.ts';
import type { House } from '../house.ts';
import type { Session } from '../session/session.ts';
import { sessionOf } from './session-of.ts';

export function closeSession(connection: Connection, message: RequestMessage): void {
  const session = sessionOf(connection, message);
  if (!session) return;
  const done = (): void => {
    connection.detach(session);
    connection.send(responseText(message.id, '{}'));
    connection.kick();
  };
  const others = (): boolean => [...session.clients.keys()].some((client) => client !== connection);
  if (others()) {
    done();
    return;
  }
  session.turns.cancel();
  session.turns.whenIdle(() => {
    if (!others()) closeInAgent(connection.house, session);
  });
  session.record({ type: 'session_closed', payload: '{}' }, { settled: done, refused: done });
}

export function deleteSession(connection: Connection, message: RequestMessage): void {
  const session = sessionOf(connection, message);
  if (!session) return;
  deleteForEveryone(connection.house, session, (problem) => {
    if (problem === undefined) {
      void forget(connection.house, session);
      connection.send(responseText(message.id, '{}'));
    } else connection.fail(message.id, 'not_persisted', problem);
    connection.kick();
  });
}

/** Ends what runs in a session and takes it away, in the agent too. `done` gets what went wrong, if anything. */
export function deleteForEveryone(house: House, session: Session, done: (problem: string | undefined) => void): void {
  if (session.order.stalled) {
    // Nothing is ended for what cannot be done.
    done('the disk of the store is full');
    return;
  }
  // A prompt that came now would be lost with the session, and keep it until then.
  session.deleting = true;
  session.turns.cancel();
  session.turns.whenIdle(() => {
    // Written with the tombstone.
    session.setRow(house.untold.markOf(session.row));
    house.registry.remove(session, (problem, live) => {
      if (problem === undefined) {
        if (!agentCan(house.agentHost, 'delete')) leaveAgent(house.agentHost, [], live);
        house.untold.deleted(session.sessionId);
        house.mcpServers.delete(session.sessionId);
      }
      done(problem);
    });
  });
}

async function forget(house: House, session: Session): Promise<void> {
  house.history.forget(session.row.num);
  try {
    await sweep(house, [session.row.num]);
  } catch (error) {
    house.logger.warn({ err: error, sessionId: session.sessionId }, 'events of a deleted session are left for later');
  }
}

/** The next request that needs the agent binds the session again. */
function closeInAgent(house: House, session: Session): void {
  const { agentHost, registry } = house;
  const { agentSessionId } = session;
  if (agentSessionId === undefined || !agentHost.link || !agentCan(agentHost, 'close')) return;
  session.agentSessionId = undefined;
  session.replay?.end();
  session.replay = undefined;
  registry.unroute(agentSessionId);
  agentHost.link.dropTemplates();
  agentHost.link.request('session/close', stringifyWire({ sessionId: agentSessionId }), () => undefined);
}
