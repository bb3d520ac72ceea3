/** What `session/load` and `session/resume` answer from the log: the agent's last answer with current values filled in. */
import { addMember, memberAt, members, parseWire, removeMembers, setValue, splice, valueAt } from '../wire-text.ts';
import { isObject } from '../json-rpc.ts';
import type { SessionState } from './session-state.ts';
import { UPDATE_KINDS } from './update-kinds.ts';

/** Wire text of the result, without `sessionId` and without our `_meta`. */
export function currentAnswer(state: SessionState): string {
  let answer = state.bound?.response ?? '{}';
  answer = splice(answer, removeMembers(answer, members(answer), ['sessionId']));
  const mode = valueAt(state.snapshots.get(UPDATE_KINDS.current_mode_update) ?? '{}', ['currentModeId']);
  if (mode !== undefined && isObject((parseWire(answer) as { modes?: unknown }).modes)) {
    const found = memberAt(answer, ['modes', 'currentModeId']);
    const modes = memberAt(answer, ['modes']);
    if (found) answer = splice(answer, [setValue(found, mode)]);
    else if (modes) answer = splice(answer, [addMember(answer, modes.valueStart, 'currentModeId', mode)]);
  }
  const options = valueAt(state.snapshots.get(UPDATE_KINDS.config_option_update) ?? '{}', ['configOptions']);
  if (options !== undefined) {
    const found = memberAt(answer, ['configOptions']);
    answer = splice(answer, [found ? setValue(found, options) : addMember(answer, 0, 'configOptions', options)]);
  }
  return answer;
}
