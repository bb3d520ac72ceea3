/** Params of an agent's request as one client gets them. */
import { memberAt, parseWire, setValue, splice, stringifyWire } from '../../protocol/wire-text.ts';
import type { View } from './attachment.ts';
import type { Session } from './session.ts';

/** The session's public id instead of the agent's; a child's id stays for clients that know of children. */
export function publicParams(session: Session, view: View, params: string): string {
  const found = memberAt(params, ['sessionId']);
  if (!found) return params;
  const own = parseWire(params.slice(found.valueStart, found.valueEnd)) === session.agentSessionId;
  return own || !view.children ? splice(params, [setValue(found, stringifyWire(session.sessionId))]) : params;
}
