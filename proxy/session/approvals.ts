/**
 * Approvals: the questions that the agent waits on (`session/request_permission`, `elicitation/create`). What happens to
 * one is in `protocol/approval.ts`; here its effects are carried out: events are recorded, clients are asked, the agent
 * is answered.
 *
 * The approvalId is made once and stored before any client sees the question. The first valid answer is recorded and
 * only then forwarded. Nothing is ever answered yes by default.
 */
import {
  type Approval,
  type ApprovalEvent,
  type Decision,
  type Effect,
  stepApproval,
} from '../../protocol/approval.ts';
import {
  asksOne,
  cancelledResult,
  fingerprintOf,
  judgeAnswer,
  timeoutResult,
  toolCallIdOf,
} from '../../protocol/approval-answer.ts';
import { rpcError } from '../../protocol/error.ts';
import { type ResponseMessage, errorText, responseText, withId } from '../../protocol/json-rpc.ts';
import { advertises, capabilityFor } from '../../protocol/methods.ts';
import { UPDATE_KINDS } from '../../protocol/v1/update-kinds.ts';
import { parseWire, stringifyWire, valueAt } from '../../protocol/wire-text.ts';
import type { AgentPort } from './agent-port.ts';
import { type AgentRequest, errorAnswer } from './agent-request.ts';
import { type CardFacts, Cards } from './cards.ts';
import type { Client } from './client.ts';
import { Elicitations } from './elicitations.ts';
import { recordedParams } from './public-params.ts';
import { controllersOf } from './same-client.ts';
import type { Session } from './session.ts';

/** What the agent is answered: a result or an error, wire text. */
interface Answer {
  readonly text: string;
  readonly isError: boolean;
  /** The client's own message, which is forwarded as it came. */
  readonly message?: ResponseMessage;
  readonly timeout?: true;
}

interface Entry {
  readonly approvalId: string;
  readonly request: AgentRequest;
  readonly toolCallId: string | undefined;
  readonly turnId: string | undefined;
  /** Of the event that opened it, once that is durable. */
  seq: number;
  state: Approval<Client, Answer>;
  readonly cards: Cards;
  readonly facts: Pick<CardFacts, 'reopened' | 'previousOutcome'>;
  /** Why the last answer of a client was refused. */
  readonly refused: Map<Client, string>;
  why: string;
  timer: NodeJS.Timeout | undefined;
}

/** An approval that waits for an answer, as `_sidecar/approvals` and the command line show it. */
export interface PendingApproval {
  readonly approvalId: string;
  readonly turnId: string | undefined;
  readonly toolCallId: string | undefined;
  readonly seq: number;
  readonly method: string;
  /** The agent's params with the session's public id, wire text. */
  readonly paramsText: string;
  readonly reopened: boolean;
}

export class Approvals {
  readonly elicitations: Elicitations;
  readonly #session: Session;
  readonly #open = new Map<string, Entry>();
  /** Asked in this life of the agent: asked again in it, a call is another one. */
  readonly #thisLife = new Set<string>();

  constructor(session: Session) {
    this.#session = session;
    this.elicitations = new Elicitations(session);
  }

  /** Approvals that wait for an answer or for its commit. */
  get pending(): number {
    return this.#open.size;
  }

  /** Nothing here has to outlive the session in memory. */
  get idle(): boolean {
    return this.#open.size === 0 && this.elicitations.idle;
  }

  list(): PendingApproval[] {
    return [...this.#open.values()]
      .filter(({ state }) => state.phase === 'pending')
      .map(({ approvalId, turnId, toolCallId, seq, request, facts }) => {
        const { method } = request;
        const paramsText = recordedParams(this.#session, request.paramsText);
        return { approvalId, turnId, toolCallId, seq, method, paramsText, reopened: facts.reopened === true };
      });
  }

  /** The agent asks. */
  ask(request: AgentRequest): void {
    const refusal = this.#refusal(request);
    if (refusal) {
      errorAnswer(request, refusal);
      return;
    }
    const toolCallId = toolCallIdOf(request);
    const again = this.#askedBefore(request, toolCallId);
    const entry: Entry = {
      approvalId: again?.approvalId ?? this.#session.host.newId(),
      request,
      toolCallId,
      turnId: this.#session.turns.current?.turnId,
      seq: 0,
      state: again?.state ?? { phase: 'absent' },
      cards: new Cards(this.#session),
      facts: again?.facts ?? {},
      refused: new Map(),
      why: '',
      timer: undefined,
    };
    if (toolCallId !== undefined && !this.#session.state.tools.has(toolCallId))
      this.#introduceTool(request, toolCallId);
    this.#open.set(entry.approvalId, entry);
    this.#thisLife.add(entry.approvalId);
    this.#step(entry, again ? { type: 'asked_again', later: true, unused: true } : { type: 'asked' });
    // The user has stopped this turn; the agent asked before it knew.
    if (this.#session.turns.current?.cancelled) this.#cancel(entry);
  }

  /** A client has attached: it is asked about everything that is pending. */
  clientAttached(client: Client): void {
    for (const entry of this.#open.values()) this.#step(entry, { type: 'attached', client });
    this.elicitations.attached(client);
  }

  /** A client starts its view anew: open cards are withdrawn, `clientAttached` follows. */
  clientMoved(client: Client): void {
    for (const entry of this.#open.values()) this.#step(entry, { type: 'moved', client });
  }

  clientLeft(client: Client): void {
    for (const entry of this.#open.values()) {
      entry.cards.drop(client);
      this.#step(entry, { type: 'left', client });
    }
  }

  /** `session/cancel`: everything that is pending is resolved as cancelled. */
  cancelAll(): void {
    for (const entry of this.#open.values()) this.#cancel(entry);
  }

  /** The agent's own `$/cancel_request`. False when the id is not an approval's. An earlier life used the same ids. */
  cancelByAgent(agentRequestId: string, agent: AgentPort): boolean {
    for (const entry of this.#open.values()) {
      if (entry.request.id !== agentRequestId || entry.request.agent !== agent) continue;
      this.#cancel(entry);
      return true;
    }
    return false;
  }

  /** Nothing can be written at present: what is cancelled need not wait for it. */
  stalled(): void {
    for (const entry of this.#open.values()) this.#step(entry, { type: 'stalled' });
  }

  /** Whoever asked is gone: shown as interrupted, not a button any more. */
  agentExited(): void {
    this.interruptAll('the agent is gone');
    this.#thisLife.clear();
  }

  interruptAll(why: string): void {
    for (const entry of this.#open.values()) {
      entry.why = why;
      this.#step(entry, { type: 'agent_exited' });
    }
  }

  /** The sidecar is stopping while the agent still waits: nobody has decided, and the agent, which is cancelled, gets no consent. */
  interruptForStop(why: string): void {
    for (const entry of this.#open.values()) {
      if (entry.state.phase !== 'pending') continue;
      entry.why = why;
      this.#step(entry, { type: 'agent_exited' });
      const { request } = entry;
      request.agent.respond(responseText(request.id, cancelledResult(request.method)));
    }
  }

  /** The session is deleted: whoever still asks is told no more than that, and nothing is recorded. */
  abandon(): void {
    for (const { request } of this.#open.values()) {
      request.agent.respond(responseText(request.id, cancelledResult(request.method)));
    }
    this.close();
    this.#open.clear();
  }

  close(): void {
    for (const entry of this.#open.values()) clearTimeout(entry.timer);
  }

  #cancel(entry: Entry): void {
    const text = cancelledResult(entry.request.method);
    this.#step(entry, { type: 'cancelled', answer: { text, isError: false } });
  }

  /** Why this question cannot be asked. Nobody attached is no reason: it waits. */
  #refusal(request: AgentRequest): ReturnType<typeof rpcError> | undefined {
    const capability = capabilityFor(request.method, request.params);
    const controllers = controllersOf(this.#session);
    if (capability === undefined || controllers.length === 0) return undefined;
    if (controllers.some((client) => advertises(client.capabilities, capability))) return undefined;
    return rpcError('invalid_params', `no attached client has ${capability}`);
  }

  /** An approval of an earlier life of the agent that this question opens again. */
  #askedBefore(
    request: AgentRequest,
    toolCallId: string | undefined,
  ): Pick<Entry, 'approvalId' | 'state' | 'facts'> | undefined {
    const fingerprint = fingerprintOf(request);
    const known = [...this.#session.state.approvals].toReversed();
    const sameCall = known.find(
      ([id, entry]) => toolCallId !== undefined && entry.toolCallId === toolCallId && this.#reopens(id),
    );
    const found =
      sameCall ??
      known.find(([id, entry]) => fingerprint !== undefined && entry.fingerprint === fingerprint && this.#reopens(id));
    if (!found) return undefined;
    const [approvalId, { outcome, state, fingerprint: before }] = found;
    // An answer to something else that only has the same id would mislead.
    const told = outcome !== undefined && before === fingerprint ? { previousOutcome: parseWire(outcome) } : {};
    return {
      approvalId,
      state: { phase: state === 'resolved' ? 'resolved' : 'interrupted' },
      facts: { reopened: true, ...told },
    };
  }

  #reopens(approvalId: string): boolean {
    const known = this.#session.state.approvals.get(approvalId);
    if (!known || known.state === 'pending' || this.#open.has(approvalId)) return false;
    const later = !this.#thisLife.has(approvalId);
    const event = { type: 'asked_again' as const, later, unused: !known.used };
    const { effects } = stepApproval({ phase: known.state }, event, { eligible: [], ask: 'all', stalled: false });
    return effects.every((effect) => effect.do !== 'separate');
  }

  #step(entry: Entry, event: ApprovalEvent<Client, Answer>): void {
    const { order } = this.#session;
    const ask = asksOne(entry.request) ? 'one' : 'all';
    const context = { eligible: this.#eligible(entry), ask, stalled: order.stalled } as const;
    const { state, effects } = stepApproval(entry.state, event, context);
    entry.state = state;
    for (const effect of effects) this.#carryOut(entry, effect);
    if (state.phase === 'pending') return;
    clearTimeout(entry.timer);
    const over = state.phase === 'resolved' || state.phase === 'interrupted';
    if (over && this.#open.get(entry.approvalId) === entry) this.#open.delete(entry.approvalId);
  }

  #carryOut(entry: Entry, effect: Effect<Client, Answer>): void {
    switch (effect.do) {
      case 'record':
        this.#record(entry, effect.event);
        return;
      case 'ask':
        this.#askClient(entry, effect.client, effect.again);
        return;
      case 'withdraw':
        entry.cards.withdraw(effect.client);
        return;
      case 'forward':
        this.#forward(entry, effect.decision);
        return;
      case 'separate':
        return;
      default:
    }
  }

  #eligible(entry: Entry): Client[] {
    const capability = capabilityFor(entry.request.method, entry.request.params);
    return controllersOf(this.#session).filter((client) => {
      const from = this.#session.clients.get(client)?.asksFrom ?? 0;
      return (
        (entry.seq === 0 || entry.seq >= from) &&
        (capability === undefined || advertises(client.capabilities, capability))
      );
    });
  }

  #record(entry: Entry, type: Extract<Effect<Client, Answer>, { do: 'record' }>['event']): void {
    const { approvalId, toolCallId, turnId, request, facts } = entry;
    const event = { type, required: true, turnId, toolCallId };
    const id = `{"approvalId":${stringifyWire(approvalId)}`;
    switch (type) {
      case 'approval_requested':
      case 'approval_reopened': {
        const before = 'previousOutcome' in facts ? `,"previousOutcome":${stringifyWire(facts.previousOutcome)}` : '';
        const params = recordedParams(this.#session, request.paramsText);
        const payload = `${id},"method":${stringifyWire(request.method)}${before},"params":${params}}`;
        this.#session.record({ ...event, payload }, { settled: (seq) => this.#recorded(entry, seq) });
        return;
      }
      case 'approval_resolved': {
        const payload = `${id},${decisionMembers(entry.state)}}`;
        this.#session.record({ ...event, payload }, { settled: () => this.#step(entry, { type: 'settled' }) });
        return;
      }
      case 'approval_interrupted': {
        const payload = `${id},"reason":${stringifyWire(entry.why)}}`;
        this.#session.record({ ...event, payload, synthetic: true });
        return;
      }
      default:
    }
  }

  #recorded(entry: Entry, seq: number): void {
    entry.seq = seq;
    this.#step(entry, { type: 'recorded' });
    const { approvalTimeoutMs } = this.#session.host.config;
    if (entry.state.phase !== 'pending' || approvalTimeoutMs === undefined) return;
    entry.timer = setTimeout(() => {
      const { result, cancelled } = timeoutResult(entry.request);
      this.#step(entry, { type: 'timed_out', cancelled, answer: { text: result, isError: false, timeout: true } });
    }, approvalTimeoutMs);
  }

  #askClient(entry: Entry, client: Client, again: boolean): void {
    const { approvalId, request, seq } = entry;
    if (asksOne(request)) this.elicitations.sent(request.params['elicitationId'], client);
    const reason = again ? entry.refused.get(client) : undefined;
    const eventId = this.#session.eventId({ seq, offset: 0 });
    const facts = { approvalId, eventId, ...entry.facts, ...(reason === undefined ? {} : { refused: reason }) };
    entry.cards.ask(client, request, seq, facts, (message) => this.#answered(entry, client, message));
  }

  #answered(entry: Entry, client: Client, message: ResponseMessage): void {
    const { verdict, reason } = judgeAnswer(entry.request, message.value);
    if (verdict === 'invalid') {
      entry.refused.set(client, reason ?? '');
      const { approvalId } = entry;
      this.#session.logger.warn({ approvalId, clientId: client.clientId, reason }, 'an answer was refused');
    }
    const found = message.result ?? message.error;
    const text = found ? message.wire.slice(found.valueStart, found.valueEnd) : 'null';
    const answer = { text, isError: message.result === undefined, message };
    this.#step(entry, { type: 'answered', client, verdict, answer });
  }

  #forward({ request }: Entry, { answer }: Decision<Client, Answer>): void {
    const { message, text, isError } = answer;
    if (message) request.agent.respond(withId(message, request.id));
    else request.agent.respond(isError ? errorText(request.id, text) : responseText(request.id, text));
  }

  /** Gemini, Qwen and Codex ask before they say what they ask about. */
  #introduceTool({ params, paramsText }: AgentRequest, toolCallId: string): void {
    const toolCall = valueAt(paramsText, ['toolCall']);
    // The id may stand beside one that is none.
    if (!toolCall?.startsWith('{')) return;
    const inner = toolCall.slice(toolCall.indexOf('{') + 1, toolCall.lastIndexOf('}')).trim();
    const title = valueAt(toolCall, ['title']) === undefined ? `,"title":${stringifyWire(toolCallId)}` : '';
    const wire = `{"sessionUpdate":"tool_call",${inner}${title}}`;
    const { sessionId } = params;
    const child = typeof sessionId === 'string' && sessionId !== this.#session.agentSessionId ? sessionId : undefined;
    this.#session.recordUpdate({ wire, childSessionId: child }, UPDATE_KINDS.tool_call, toolCallId, true);
  }
}

/** What `approval_resolved` says of a decision. */
function decisionMembers(state: Approval<Client, Answer>): string {
  if (state.phase !== 'resolving') return '"outcome":null,"by":null';
  const { answer, by } = state.decision;
  const outcome = answer.isError ? 'null' : (valueAt(answer.text, ['outcome']) ?? answer.text);
  const who = by ? stringifyWire({ clientId: by.clientId, name: by.name }) : 'null';
  const timeout = answer.timeout ? ',"timeout":true' : '';
  return `"outcome":${outcome},"${answer.isError ? 'error' : 'answer'}":${answer.text},"by":${who}${timeout}`;
}
