/**
 * Binding: making a session live in the agent that runs now. Tried in the order of `--restore`: `session/resume`, then
 * `session/load` with all it replays swallowed. How it went is an event that clients are shown; never silent.
 */
import { rpcError } from '../../protocol/error.ts';
import { isObject, type JsonObject, type ResponseMessage } from '../../protocol/json-rpc.ts';
import { stringifyWire } from '../../protocol/wire-text.ts';
import type { AgentAnswer, BoundOutcome } from '../session/agent-port.ts';
import type { Session } from '../session/session.ts';
import type { AgentHost, Ready } from './agent-host.ts';
import type { AgentLink } from './agent-link.ts';

/** Any way that does not answer in this time is given up for the next. */
const WAY_MS = 30_000;
/** After the response of `session/load` its replay has ended when nothing came for this long, or after the longest. */
const REPLAY_QUIET_MS = 50;
const REPLAY_LONGEST_MS = 1000;

export interface BindingHost {
  readonly agentHost: AgentHost;
  /** Where updates for an agent session id go. */
  route(agentSessionId: string, session: Session): void;
  unroute(agentSessionId: string): void;
  /** `mcpServers` of the newest new, load or resume of a session, wire text. */
  mcpServers(session: Session): string;
}

export async function bindSession(host: BindingHost, session: Session): Promise<BoundOutcome> {
  const ready = await host.agentHost.ready();
  if (ready.outcome !== 'ready') return notBound(ready);
  const { link, capabilities } = ready;
  if (session.agentSessionId !== undefined) {
    return { outcome: 'bound', agent: link, agentSessionId: session.agentSessionId };
  }
  const known = session.state.bound?.agentSessionId;
  if (known === undefined) {
    return {
      outcome: 'unavailable',
      error: rpcError('agent_unavailable', 'the log names no agent session to go on with'),
    };
  }
  const failures: string[] = [];
  for (const way of session.host.config.restore) {
    const bound = await tryWay(host, session, link, capabilities, way, known);
    if (bound === true) return { outcome: 'bound', agent: link, agentSessionId: known };
    if (bound === false) continue;
    if (isAuthRequired(bound)) return { outcome: 'agent_error', error: bound };
    failures.push(`${way}: ${bound.slice(0, 200)}`);
  }
  const detail = `the agent could not restore the session${failures.length > 0 ? `: ${failures.join('; ')}` : ''}`;
  return { outcome: 'unavailable', error: rpcError('agent_unavailable', detail, { sessionId: session.sessionId }) };
}

/** True: bound. False: this way does not exist here. Else the error, wire text. */
async function tryWay(
  host: BindingHost,
  session: Session,
  link: AgentLink,
  capabilities: JsonObject,
  way: 'resume' | 'load' | 'prime',
  agentSessionId: string,
): Promise<true | false | string> {
  const sessionCapabilities = isObject(capabilities['sessionCapabilities']) ? capabilities['sessionCapabilities'] : {};
  if (way === 'prime') return false;
  if (way === 'resume' && !isObject(sessionCapabilities['resume'])) return false;
  if (way === 'load' && capabilities['loadSession'] !== true) return false;
  const { cwd, additionalDirectories } = session.row;
  const extra = additionalDirectories ? `,"additionalDirectories":${stringifyWire(additionalDirectories)}` : '';
  const params = `{"sessionId":${stringifyWire(agentSessionId)},"cwd":${stringifyWire(cwd)},"mcpServers":${host.mcpServers(session)}${extra}}`;
  session.swallowing = true;
  host.route(agentSessionId, session);
  const answer = await requestWithin(link, `session/${way}`, params);
  const failed = answer.outcome === 'lost' ? answer.message : errorOf(answer.message);
  if (failed !== undefined) {
    session.swallowing = false;
    host.unroute(agentSessionId);
    return failed;
  }
  if (way === 'load') await session.intake.quiet(REPLAY_QUIET_MS, REPLAY_LONGEST_MS);
  session.swallowing = false;
  session.agentSessionId = agentSessionId;
  const { result, wire } = (answer as { message: ResponseMessage }).message;
  const response = result ? wire.slice(result.valueStart, result.valueEnd) : '{}';
  recordBound(session, agentSessionId, way === 'resume' ? 'resumed' : 'loaded', response);
  return true;
}

/** Writes how a session came to live in the agent. */
export function recordBound(
  session: Session,
  agentSessionId: string,
  how: 'new' | 'resumed' | 'loaded' | 'primed',
  response: string,
): void {
  const object = response.startsWith('{') ? response : '{}';
  session.record({
    type: 'session_bound',
    required: true,
    payload: `{"agentSessionId":${stringifyWire(agentSessionId)},"how":"${how}","response":${object}}`,
  });
}

function notBound(ready: Exclude<Ready, { outcome: 'ready' }>): BoundOutcome {
  return ready.outcome === 'refused'
    ? { outcome: 'agent_error', error: ready.error }
    : { outcome: 'unavailable', error: ready.error };
}

function errorOf(message: ResponseMessage): string | undefined {
  return message.error ? message.wire.slice(message.error.valueStart, message.error.valueEnd) : undefined;
}

function isAuthRequired(error: string): boolean {
  return /"code"\s*:\s*-32000\b/.test(error);
}

function requestWithin(link: AgentLink, method: string, params: string): Promise<AgentAnswer> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve({ outcome: 'lost', message: `no answer in ${WAY_MS / 1000} s` }), WAY_MS);
    link.request(method, params, (answer) => {
      clearTimeout(timer);
      resolve(answer);
    });
  });
}
