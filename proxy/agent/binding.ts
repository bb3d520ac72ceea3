/**
 * Binding: making a session live in the agent that runs now. Tried in the order of `--restore`: `session/resume`,
 * `session/load`, or a new agent session that is given the conversation as text. Any error, or 30 s of silence, tries
 * the next way; when none works the request fails. How it went is an event that clients are shown; never silent.
 */
import { rpcError } from '../../protocol/error.ts';
import { isObject, type JsonObject, type ResponseMessage } from '../../protocol/json-rpc.ts';
import { parseWire, stringifyWire } from '../../protocol/wire-text.ts';
import { isSessionId } from '../../storage/log-keys.ts';
import type { RestoreWay } from '../config.ts';
import { serversDigest } from '../kept-servers.ts';
import type { AgentAnswer, AgentPort, BoundOutcome } from '../session/agent-port.ts';
import type { Session } from '../session/session.ts';
import type { AgentHost, Ready } from './agent-host.ts';
import type { AgentLink } from './agent-link.ts';
import { PRIMED_NOTE, PRIMER_BYTES, primerText } from './priming.ts';
import { leaveAgent } from './leave-agent.ts';
import { setAgain } from './set-again.ts';
import { Swallow } from './swallow.ts';

/** Any way that is silent for so long is given up for the next. */
const SILENCE_MS = 30_000;

export interface BindingHost {
  readonly agentHost: Pick<AgentHost, 'link' | 'ready' | 'stderrTail' | 'storedAnswer'>;
  /** Where updates for an agent session id go. */
  route(agentSessionId: string, session: Session): void;
  /** @param replaying a restore that failed and whose replay may not be over */
  unroute(agentSessionId: string, replaying?: Swallow): void;
  /** A request that makes a session is on its way; call the result when it is answered. */
  creating(): () => void;
  /** `mcpServers` of the newest new, load or resume of a session, wire text. */
  mcpServers(session: Session): string;
}

type ReadyAgent = Extract<Ready, { outcome: 'ready' }>;

/** How one way went. `absent`: the agent does not have it. */
type Tried =
  | { readonly tried: 'bound'; readonly agentSessionId: string }
  | { readonly tried: 'absent' }
  /** The session was deleted meanwhile. */
  | { readonly tried: 'deleted' }
  /** `error` is wire text when the agent answered with one. */
  | { readonly tried: 'failed'; readonly message: string; readonly error?: string };

export async function bindSession(host: BindingHost, session: Session): Promise<BoundOutcome> {
  const known = session.state.bound?.agentSessionId;
  const ways = waysOf(session, known);
  const failures: string[] = [];
  let ready: Ready | undefined;
  if (!host.agentHost.link) session.tellAgentState('starting');
  for (const way of ways) {
    // An agent that died of one way may live with the next.
    if (ready?.outcome !== 'ready' || host.agentHost.link !== ready.link) {
      ready = await host.agentHost.ready();
      if (session.deleting) return deleted(session);
      if (ready.outcome !== 'ready') return notBound(session, ready);
    }
    const { link } = ready;
    const tried = await tryWay(host, session, ready, way, known);
    if (tried.tried === 'deleted' || session.deleting) return deleted(session);
    if (tried.tried === 'bound') return { outcome: 'bound', agent: link, agentSessionId: tried.agentSessionId };
    if (tried.tried === 'absent') continue;
    session.logger.warn({ way, why: tried.message.slice(0, 500) }, 'the agent did not restore the session');
    if (tried.error !== undefined && isAuthRequired(tried.error)) {
      tellFailed(session, tried.error);
      return { outcome: 'agent_error', error: tried.error };
    }
    failures.push(`${way}: ${tried.message.slice(0, 200)}`);
  }
  const detail = `the agent could not restore the session${failures.length > 0 ? `: ${failures.join('; ')}` : ''}`;
  const stderr = host.agentHost.stderrTail;
  const error = rpcError('agent_unavailable', detail, { sessionId: session.sessionId, stderr });
  session.tellAgentState('failed', { message: detail });
  return { outcome: 'unavailable', error };
}

/**
 * A session that no agent knows can only be primed, and so must one whose agent session was to be given the conversation
 * and never showed that it got it.
 */
function waysOf(session: Session, known: string | undefined): readonly RestoreWay[] {
  const { bound } = session.state;
  if (known === undefined || (bound?.how === 'primed' && !bound.proven)) return ['prime'];
  return session.host.config.restore;
}

function tryWay(
  host: BindingHost,
  session: Session,
  ready: ReadyAgent,
  way: RestoreWay,
  known: string | undefined,
): Promise<Tried> {
  if (way === 'prime' || known === undefined) return prime(host, session, ready.link);
  if (!canRestore(ready.capabilities, way)) return Promise.resolve({ tried: 'absent' });
  return restore(host, session, ready.link, way, known);
}

export function canRestore(capabilities: JsonObject, way: RestoreWay): boolean {
  const session = isObject(capabilities['sessionCapabilities']) ? capabilities['sessionCapabilities'] : {};
  if (way === 'load') return capabilities['loadSession'] === true;
  return way === 'resume' && isObject(session['resume']);
}

async function restore(
  host: BindingHost,
  session: Session,
  link: AgentLink,
  way: 'resume' | 'load',
  agentSessionId: string,
): Promise<Tried> {
  const swallow = new Swallow(session);
  const heard = session.intake.updates;
  session.replay = swallow;
  host.route(agentSessionId, session);
  const params = `{"sessionId":${stringifyWire(agentSessionId)},${placeOf(host, session)}}`;
  const answer = await requestUnlessSilent(link, `session/${way}`, params, () => swallow.lastHeard);
  const failed = failureOf(answer);
  const expectsReplay = way === 'load' && session.state.userMessages > 0;
  if (!failed) await swallow.answered(expectsReplay);
  const empty = expectsReplay && swallow.userMessages === 0;
  const gone = host.agentHost.link !== link;
  if (failed || empty || gone || session.deleting) {
    if (session.replay === swallow) session.replay = undefined;
    host.unroute(agentSessionId, session.intake.updates > heard ? swallow : undefined);
    if (session.deleting) return { tried: 'deleted' };
    if (failed) return failed;
    return { tried: 'failed', message: gone ? 'the agent is gone' : 'it replayed nothing of the conversation' };
  }
  session.agentSessionId = agentSessionId;
  session.boundServers = serversDigest(host.mcpServers(session));
  const response = resultOf(answer);
  recordBound(session, agentSessionId, way === 'resume' ? 'resumed' : 'loaded', response);
  swallow.watch();
  await setAgain(session, link, agentSessionId, response);
  return { tried: 'bound', agentSessionId };
}

/** A new agent session behind the same public id. What it is told goes before the next prompt. */
async function prime(host: BindingHost, session: Session, link: AgentLink): Promise<Tried> {
  const primer = await primerOf(session);
  if (session.deleting) return { tried: 'deleted' };
  const created = host.creating();
  const answer = await requestUnlessSilent(link, 'session/new', `{${placeOf(host, session)}}`, () => 0);
  try {
    const failed = failureOf(answer);
    if (failed) return failed;
    const response = resultOf(answer);
    const result = (answer as { message: ResponseMessage }).message.value['result'];
    const agentSessionId = isObject(result) ? result['sessionId'] : undefined;
    if (!isSessionId(agentSessionId)) return { tried: 'failed', message: 'session/new gave no usable sessionId' };
    if (host.agentHost.link !== link) return { tried: 'failed', message: 'the agent is gone' };
    const { bound } = session.row;
    if (!bound.includes(agentSessionId)) session.setRow({ bound: [...bound, agentSessionId] });
    if (session.deleting) {
      host.unroute(agentSessionId);
      leaveAgent(host.agentHost, [agentSessionId], [agentSessionId]);
      return { tried: 'deleted' };
    }
    host.route(agentSessionId, session);
    session.agentSessionId = agentSessionId;
    session.boundServers = serversDigest(host.mcpServers(session));
    session.primer = primer;
    // Without a conversation there is nothing that the agent lacks.
    if (primer === undefined) recordBound(session, agentSessionId, 'new', response);
    else recordBound(session, agentSessionId, 'primed', response, PRIMED_NOTE);
    await setAgain(session, link, agentSessionId, response);
    return { tried: 'bound', agentSessionId };
  } finally {
    created();
  }
}

async function primerOf(session: Session): Promise<string | undefined> {
  const { history } = session.host;
  // As JSON a message is longer than as told, and tool calls are told by their title.
  const recent = await history.recent(session.row, 4 * PRIMER_BYTES);
  const page = recent.length > 0 ? undefined : await history.page(session.row, { limit: 1 });
  const messages = page?.messages ?? recent;
  const oldest = messages.at(-1)?.eventId;
  const first =
    oldest === undefined ? undefined : await history.page(session.row, { limit: 1, beforeSeq: seqOf(oldest) });
  return primerText(messages, first === undefined || first.messages.length === 0);
}

function seqOf(eventId: string): number {
  return Number(eventId.slice(eventId.lastIndexOf('-') + 1));
}

/** Writes how a session came to live in the agent. `note` is shown to clients as text. */
export function recordBound(
  session: Session,
  agentSessionId: string,
  how: 'new' | 'resumed' | 'loaded' | 'primed',
  response: string,
  note?: string,
): void {
  const object = response.startsWith('{') ? response : '{}';
  const noted = note === undefined ? '' : `,"note":${stringifyWire(note)}`;
  session.record({
    type: 'session_bound',
    required: true,
    payload: `{"agentSessionId":${stringifyWire(agentSessionId)},"how":"${how}","response":${object}${noted}}`,
  });
}

/** `cwd`, `mcpServers` and `additionalDirectories` of a request that makes or restores the session. */
function placeOf(host: BindingHost, session: Session): string {
  const { cwd, additionalDirectories } = session.row;
  const extra = additionalDirectories ? `,"additionalDirectories":${stringifyWire(additionalDirectories)}` : '';
  return `"cwd":${stringifyWire(cwd)},"mcpServers":${host.mcpServers(session)}${extra}`;
}

function deleted({ sessionId }: Session): BoundOutcome {
  return { outcome: 'unavailable', error: rpcError('unknown_session', undefined, { sessionId }) };
}

function notBound(session: Session, ready: Exclude<Ready, { outcome: 'ready' }>): BoundOutcome {
  if (ready.outcome === 'refused') {
    tellFailed(session, ready.error);
    return { outcome: 'agent_error', error: ready.error };
  }
  session.tellAgentState('failed', { message: ready.error.message });
  return { outcome: 'unavailable', error: ready.error };
}

/** @param error the agent's, wire text */
function tellFailed(session: Session, error: string): void {
  const value: unknown = parseWire(error);
  const message =
    isObject(value) && typeof value['message'] === 'string' ? value['message'] : 'it answered with an error';
  session.tellAgentState('failed', { message });
}

function failureOf(answer: AgentAnswer): Extract<Tried, { tried: 'failed' }> | undefined {
  if (answer.outcome === 'lost') return { tried: 'failed', message: answer.message };
  const { error, wire } = answer.message;
  if (!error) return undefined;
  const text = wire.slice(error.valueStart, error.valueEnd);
  return { tried: 'failed', message: text, error: text };
}

function resultOf(answer: AgentAnswer): string {
  if (answer.outcome !== 'answered') return '{}';
  const { result, wire } = answer.message;
  return result ? wire.slice(result.valueStart, result.valueEnd) : '{}';
}

export function isAuthRequired(error: string): boolean {
  return /"code"\s*:\s*-32000\b/.test(error);
}

/** @param lastHeard milliseconds since 1970 of the last sign of life */
export function requestUnlessSilent(
  link: Pick<AgentPort, 'request'>,
  method: string,
  params: string,
  lastHeard: () => number,
  silenceMs: number = SILENCE_MS,
): Promise<AgentAnswer> {
  return new Promise((resolve) => {
    let timer: NodeJS.Timeout;
    const look = (): void => {
      const left = lastHeard() + silenceMs - Date.now();
      if (left > 0) timer = setTimeout(look, left);
      else resolve({ outcome: 'lost', message: `no answer to ${method} in ${silenceMs / 1000} s` });
    };
    timer = setTimeout(look, silenceMs);
    link.request(method, params, (answer) => {
      clearTimeout(timer);
      resolve(answer);
    });
  });
}
