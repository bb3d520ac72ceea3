/**
 * `session/fork`: a session that shares everything up to the end of a finished turn, and nothing after it. The agent's
 * own fork is used where it means the same: of an idle session at its last turn. Any other fork gets the conversation as
 * text before its first prompt.
 */
import { rpcError } from '../../protocol/error.ts';
import { type RequestMessage, errorText, isObject, paramsOf } from '../../protocol/json-rpc.ts';
import { sidecarOf } from '../../protocol/sidecar-meta.ts';
import { currentAnswer } from '../../protocol/v1/current-answer.ts';
import { addMember, splice, stringifyWire } from '../../protocol/wire-text.ts';
import { isSessionId } from '../../storage/log-keys.ts';
import { capabilitiesOf } from '../agent/agent-host.ts';
import { isAuthRequired, requestUnlessSilent } from '../agent/binding.ts';
import { leaveAgent } from '../agent/leave-agent.ts';
import { Swallow } from '../agent/swallow.ts';
import type { Connection } from '../connection.ts';
import { forkPoint } from '../session/fork-point.ts';
import type { Session } from '../session/session.ts';
import { factsOf, introduce } from './new-session.ts';
import { agentParams } from './pass.ts';
import { sessionOf } from './session-of.ts';

export function forkSession(connection: Connection, message: RequestMessage): void {
  const { cwd } = paramsOf(message);
  if (typeof cwd !== 'string') {
    connection.fail(message.id, 'invalid_params', 'session/fork needs a cwd that is an absolute path');
    return;
  }
  const session = sessionOf(connection, message);
  if (!session) return;
  if (session.full) {
    connection.fail(message.id, 'not_persisted');
    return;
  }
  session.whenRepaired(() => void forkNow(connection, message, session, cwd));
}

async function forkNow(connection: Connection, message: RequestMessage, parent: Session, cwd: string): Promise<void> {
  const { atEventId } = sidecarOf(paramsOf(message));
  const point = forkPoint(parent.log, parent.row, parent.order.head, atEventId);
  if ('refused' in point) {
    connection.fail(message.id, 'invalid_params', point.refused);
    connection.kick();
    return;
  }
  const child = point.last && !parent.turns.busy ? await askAgent(connection, message, parent) : undefined;
  if (child && 'error' in child) {
    connection.send(errorText(message.id, child.error));
    connection.kick();
    return;
  }
  // While the agent was asked, the parent may have been deleted, or pruned up to behind the point.
  const still = sessionOf(connection, message);
  if (!still || point.seq < still.row.low - 1) {
    if (child) {
      const { registry, agentHost } = connection.house;
      registry.unroute(child.agentSessionId);
      leaveAgent(agentHost, [child.agentSessionId], [child.agentSessionId]);
      child.done();
    }
    if (still) connection.fail(message.id, 'invalid_params', 'the events to fork at were pruned meanwhile');
    connection.kick();
    return;
  }
  connection.house.registry.fork(
    parent,
    point.seq,
    { ...factsOf(paramsOf(message), cwd), ...child },
    (session) => {
      if (child) settleIn(session, child.agentSessionId);
      introduce(connection, message, session, answerOf(session, child?.response), session.order.head);
    },
    () => {
      connection.send(errorText(message.id, stringifyWire(rpcError('not_persisted'))));
      connection.kick();
    },
  );
  child?.done();
}

interface AgentFork {
  readonly agentSessionId: string;
  /** The agent's result, wire text. */
  readonly response: string;
  /** Updates that came early may go on to their sessions. */
  readonly done: () => void;
}

/** The agent's own fork; undefined when it has none to give. An error is wire text for the client. */
async function askAgent(
  connection: Connection,
  message: RequestMessage,
  parent: Session,
): Promise<AgentFork | { readonly error: string } | undefined> {
  const { agentHost, registry } = connection.house;
  const known = agentHost.storedAnswer;
  const can = known === undefined ? undefined : capabilitiesOf(known)['sessionCapabilities'];
  if (!isObject(can) || !isObject(can['fork'])) return undefined;
  const bound = await parent.host.bind(parent);
  if (bound.outcome === 'agent_error') return { error: bound.error };
  // It may have begun a turn meanwhile.
  if (bound.outcome !== 'bound' || parent.turns.busy) return undefined;
  const done = registry.creating();
  const answer = await requestUnlessSilent(bound.agent, 'session/fork', agentParams(message, parent), () => 0);
  const result = answer.outcome === 'answered' ? answer.message.value['result'] : undefined;
  const agentSessionId = isObject(result) ? result['sessionId'] : undefined;
  if (answer.outcome !== 'answered' || !isSessionId(agentSessionId)) {
    done();
    const { error, wire } = answer.outcome === 'answered' ? answer.message : { error: undefined, wire: '' };
    const text = error && wire.slice(error.valueStart, error.valueEnd);
    return text !== undefined && isAuthRequired(text) ? { error: text } : undefined;
  }
  // What it has replayed so far is what the child's log shares with its parent.
  registry.dropEarly(agentSessionId);
  const { result: found, wire } = answer.message;
  return { agentSessionId, response: found ? wire.slice(found.valueStart, found.valueEnd) : '{}', done };
}

/** The child lives in the agent when what that replays of the conversation is over. */
function settleIn(child: Session, agentSessionId: string): void {
  const { agentSessionId: now, replay } = child;
  if (now !== agentSessionId || !(replay instanceof Swallow)) return;
  const bound = child.host.bind(child);
  child.agentSessionId = undefined;
  child.binding = (async () => {
    await replay.answered(false);
    child.binding = undefined;
    if (child.deleting) return bound;
    if (child.replay !== replay) return child.host.bind(child);
    child.agentSessionId = agentSessionId;
    replay.watch();
    return bound;
  })();
}

/** A fork that no agent knows yet is described by what the agent last said of its parent. */
function answerOf(session: Session, response: string | undefined): string {
  if (response !== undefined) return response;
  const answer = currentAnswer(session.state);
  return splice(answer, [addMember(answer, 0, 'sessionId', stringifyWire(session.sessionId))]);
}
