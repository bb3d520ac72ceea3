/** Passing a client's message to the agent: ids and session ids are rewritten, everything else stays byte for byte. */
import {
  type NotificationMessage,
  type RequestMessage,
  type ResponseMessage,
  paramsOf,
  withId,
} from '../../protocol/json-rpc.ts';
import { memberAt, setValue, splice, stringifyWire } from '../../protocol/wire-text.ts';
import { notReadyText } from '../agent/agent-host.ts';
import type { Connection } from '../connection.ts';
import type { AgentAnswer, AgentPort } from '../session/agent-port.ts';
import { resultFor } from '../session/client-view.ts';
import type { Session } from '../session/session.ts';
import { withoutSidecarMeta } from '../../protocol/sidecar-meta.ts';
import { rpcError } from '../../protocol/error.ts';
import { errorText } from '../../protocol/json-rpc.ts';
import { methodOf } from '../../protocol/methods.ts';
import { parentIdOf } from '../child-sessions.ts';
import { ensureAttached, sessionOf } from './session-of.ts';

/** The params as the agent gets them. */
export function agentParams(message: RequestMessage | NotificationMessage, session?: Session): string {
  if (!message.params) return '{}';
  const params = withoutSidecarMeta(message.wire.slice(message.params.valueStart, message.params.valueEnd));
  const found = session?.agentSessionId !== undefined ? memberAt(params, ['sessionId']) : undefined;
  return found ? splice(params, [setValue(found, stringifyWire(session?.agentSessionId))]) : params;
}

/** Sends a client's request to the agent; `answered` gets its response before the client does. */
export function forward(
  connection: Connection,
  message: RequestMessage,
  agent: AgentPort,
  params: string,
  answered?: (answer: ResponseMessage) => void,
  session?: Session,
): void {
  if (session) session.holds++;
  const agentId = agent.request(message.method, params, (answer) => {
    connection.forwarded.delete(message.id);
    if (session) session.holds--;
    if (answer.outcome === 'answered') answered?.(answer.message);
    respond(connection, message.id, answer);
  });
  connection.forwarded.set(message.id, agentId);
}

export function respond(connection: Connection, id: string, answer: AgentAnswer): void {
  if (answer.outcome === 'answered') connection.send(answerFor(connection, answer.message, id));
  else connection.send(errorText(id, stringifyWire(rpcError('agent_unavailable', answer.message))));
  connection.kick();
}

function answerFor(connection: Connection, message: ResponseMessage, id: string): string {
  const { result, wire } = message;
  if (!result || connection.booleanOptions) return withId(message, id);
  const text = wire.slice(result.valueStart, result.valueEnd);
  const shown = resultFor(connection, text);
  return shown === text ? withId(message, id) : withId(message, id, [setValue(result, shown)]);
}

/**
 * A request of the client goes to the agent. When it names a session that we know it is bound to that, and the
 * connection is put on it.
 */
export function passRequest(connection: Connection, message: RequestMessage): void {
  const { sessionId } = paramsOf(message);
  const opened = typeof sessionId === 'string' ? connection.house.registry.get(sessionId) : undefined;
  if (opened && 'session' in opened) ensureAttached(connection, opened.session);
  else if (methodOf('client', message.method)?.scope === 'session' && parentIdOf(connection.house, sessionId)) {
    // Of a child: it is told where this goes.
    sessionOf(connection, message);
    return;
  }
  withAgent(connection, message, (agent, session) =>
    forward(connection, message, agent, agentParams(message, session), undefined, session),
  );
}

/** Gets the agent that a request needs, with its session living in it; tells the client when that cannot be. */
export function withAgent(
  connection: Connection,
  message: RequestMessage,
  run: (agent: AgentPort, session: Session | undefined) => void,
): void {
  const { sessionId } = paramsOf(message);
  const { registry, agentHost } = connection.house;
  const opened = typeof sessionId === 'string' ? registry.get(sessionId) : undefined;
  if (!opened) {
    connection.asking++;
    void agentHost.ready().then((ready) => {
      connection.asking--;
      if (ready.outcome === 'ready') run(ready.link, undefined);
      else {
        connection.send(notReadyText(message.id, ready));
        connection.kick();
      }
    });
    return;
  }
  if ('error' in opened) {
    connection.send(errorText(message.id, stringifyWire(opened.error)));
    return;
  }
  const { session } = opened;
  const bound = session.host.bind(session);
  const go = (outcome: Awaited<typeof bound>): void => {
    if (outcome.outcome === 'bound') run(outcome.agent, session);
    else {
      const error = outcome.outcome === 'agent_error' ? outcome.error : stringifyWire(outcome.error);
      connection.send(errorText(message.id, error));
      connection.kick();
    }
  };
  if ('outcome' in bound) {
    go(bound);
    return;
  }
  connection.asking++;
  void bound.then((outcome) => {
    connection.asking--;
    go(outcome);
  });
}

/** A notification of the client goes to the agent when it runs; it starts nothing. */
export function passNotification(connection: Connection, message: NotificationMessage): void {
  const { sessionId } = paramsOf(message);
  const { registry, agentHost } = connection.house;
  const opened = typeof sessionId === 'string' ? registry.get(sessionId) : undefined;
  const session = opened && 'session' in opened ? opened.session : undefined;
  if (session && session.agentSessionId === undefined) return;
  agentHost.link?.notify(message.method, agentParams(message, session));
}
