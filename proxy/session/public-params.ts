/** Params with the session's id as the other side knows it. */
import { memberAt, parseWire, setValue, splice, stringifyWire } from '../../protocol/wire-text.ts';
import type { View } from './attachment.ts';
import type { Session } from './session.ts';

/** Of an agent's request, as it is recorded: the session's public id instead of the agent's; a child's id stays. */
export function recordedParams(session: Session, params: string): string {
  return named(session, params, false);
}

/** The same for one client: a child's id stays for those that know of children. */
export function publicParams(session: Session, view: View, params: string): string {
  return named(session, params, !view.children);
}

function named(session: Session, params: string, always: boolean): string {
  const found = memberAt(params, ['sessionId']);
  if (!found) return params;
  const own = parseWire(params.slice(found.valueStart, found.valueEnd)) === session.agentSessionId;
  return own || always ? splice(params, [setValue(found, stringifyWire(session.sessionId))]) : params;
}

/** A client's params as the agent gets them. */
export function agentParams(session: Session, params: string): string {
  const found = memberAt(params, ['sessionId']);
  return found ? splice(params, [setValue(found, stringifyWire(session.agentSessionId))]) : params;
}
