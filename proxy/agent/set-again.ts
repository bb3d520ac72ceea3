/** Mode and config options of the log, set again in an agent session that may have begun with its own. */
import { isObject } from '../../protocol/json-rpc.ts';
import { UPDATE_KINDS } from '../../protocol/v1/update-kinds.ts';
import { parseWire, stringifyWire } from '../../protocol/wire-text.ts';
import type { Session } from '../session/session.ts';
import type { AgentLink } from './agent-link.ts';

const ANSWER_MS = 10_000;

/** What the agent refuses is named in `session.notApplied`, and its own value becomes the session's. */
export async function setAgain(
  session: Session,
  link: AgentLink,
  agentSessionId: string,
  response: string,
): Promise<void> {
  const notApplied: string[] = [];
  const answered = parseWire(response);
  const told = isObject(answered) ? answered : {};
  const modes = isObject(told['modes']) ? told['modes'] : {};
  const mode = snapshot(session, UPDATE_KINDS.current_mode_update)['currentModeId'];
  if (typeof mode === 'string' && modes['currentModeId'] !== mode) {
    const params = { sessionId: agentSessionId, modeId: mode };
    if (!(await set(link, 'session/set_mode', params))) {
      notApplied.push('mode');
      const actual = modes['currentModeId'];
      if (typeof actual === 'string') {
        const wire = stringifyWire({ sessionUpdate: 'current_mode_update', currentModeId: actual });
        session.recordUpdate({ wire }, UPDATE_KINDS.current_mode_update, undefined, true);
      }
    }
  }
  const has = listOf(told['configOptions']);
  let refused = false;
  for (const option of listOf(snapshot(session, UPDATE_KINDS.config_option_update)['configOptions'])) {
    const { id, type, currentValue } = option;
    const now = has.find((entry) => entry['id'] === id);
    if (now?.['currentValue'] === currentValue) continue;
    const params = { sessionId: agentSessionId, configId: id, value: currentValue };
    const typed = type === 'boolean' ? { ...params, type } : params;
    if (session.deleting) return;
    if (await set(link, 'session/set_config_option', typed)) continue;
    notApplied.push(`configOptions.${String(id)}`);
    refused = true;
  }
  if (refused && has.length > 0) {
    const wire = stringifyWire({ sessionUpdate: 'config_option_update', configOptions: has });
    session.recordUpdate({ wire }, UPDATE_KINDS.config_option_update, undefined, true);
  }
  session.notApplied = notApplied;
}

function snapshot(session: Session, kind: number): Readonly<Record<string, unknown>> {
  const value = parseWire(session.state.snapshots.get(kind) ?? '{}');
  return isObject(value) ? value : {};
}

function listOf(value: unknown): readonly Readonly<Record<string, unknown>>[] {
  return Array.isArray(value) ? value.filter(isObject) : [];
}

function set(link: AgentLink, method: string, params: object): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(false), ANSWER_MS);
    link.request(method, stringifyWire(params), (answer) => {
      clearTimeout(timer);
      resolve(answer.outcome === 'answered' && answer.message.error === undefined);
    });
  });
}
