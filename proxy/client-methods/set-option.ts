/**
 * `session/set_mode` and `session/set_config_option`: passed to the agent; what succeeded becomes an event, since the
 * agent need not echo it.
 */
import { type RequestMessage, type ResponseMessage, paramsOf } from '../../protocol/json-rpc.ts';
import { UPDATE_KINDS } from '../../protocol/v1/update-kinds.ts';
import { stringifyWire, valueAt } from '../../protocol/wire-text.ts';
import type { Connection } from '../connection.ts';
import type { Session } from '../session/session.ts';
import { agentParams, forward, withAgent } from './pass.ts';
import { ensureAttached, sessionOf } from './session-of.ts';

export function setModeOrOption(connection: Connection, message: RequestMessage): void {
  const known = sessionOf(connection, message);
  if (!known) return;
  ensureAttached(connection, known);
  withAgent(connection, message, (agent, session) => {
    const answered = (answer: ResponseMessage): void => {
      if (!answer.result || !session) return;
      if (message.method === 'session/set_mode') recordMode(session, paramsOf(message)['modeId']);
      else recordOptions(session, answer.wire.slice(answer.result.valueStart, answer.result.valueEnd));
    };
    forward(connection, message, agent, agentParams(message, session), answered, session);
  });
}

function recordMode(session: Session, modeId: unknown): void {
  const wire = stringifyWire({ sessionUpdate: 'current_mode_update', currentModeId: modeId });
  const last = session.state.snapshots.get(UPDATE_KINDS.current_mode_update);
  if (last !== undefined && valueAt(last, ['currentModeId']) === stringifyWire(modeId)) return;
  session.recordUpdate({ wire }, UPDATE_KINDS.current_mode_update, undefined, true);
}

function recordOptions(session: Session, result: string): void {
  const options = valueAt(result, ['configOptions']);
  if (options === undefined) return;
  const wire = `{"sessionUpdate":"config_option_update","configOptions":${options}}`;
  const last = session.state.snapshots.get(UPDATE_KINDS.config_option_update);
  if (last !== undefined && valueAt(last, ['configOptions']) === options) return;
  session.recordUpdate({ wire }, UPDATE_KINDS.config_option_update, undefined, true);
}
