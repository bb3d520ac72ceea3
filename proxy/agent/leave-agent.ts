/** Telling the agent that sessions of its are not wanted any more, as far as it can be told. */
import { isObject } from '../../protocol/json-rpc.ts';
import { stringifyWire } from '../../protocol/wire-text.ts';
import { type AgentHost, capabilitiesOf } from './agent-host.ts';

export function agentCan(agentHost: Pick<AgentHost, 'storedAnswer'>, what: 'close' | 'delete'): boolean {
  const stored = agentHost.storedAnswer;
  const known = stored === undefined ? undefined : capabilitiesOf(stored)['sessionCapabilities'];
  return isObject(known) && isObject(known[what]);
}

/**
 * Deletes sessions in the agent that runs; one that cannot delete is asked to close those that live in it.
 * @param known all agent session ids; @param live those of this agent life
 */
export function leaveAgent(
  agentHost: Pick<AgentHost, 'storedAnswer' | 'link'>,
  known: Iterable<string>,
  live: Iterable<string>,
): void {
  const { link } = agentHost;
  const deletes = agentCan(agentHost, 'delete');
  if (!link || !(deletes || agentCan(agentHost, 'close'))) return;
  const method = deletes ? 'session/delete' : 'session/close';
  for (const sessionId of deletes ? known : live) {
    link.request(method, stringifyWire({ sessionId }), () => undefined);
  }
}
