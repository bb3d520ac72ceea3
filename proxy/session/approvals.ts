/**
 * Approvals: the questions that the agent waits on (`session/request_permission`, `elicitation/create`).
 *
 *   asked by the agent -> recording -> pending -> resolving -> done
 *                         (approval_requested)    (approval_resolved, durable, then forwarded)
 *
 * The approvalId is made once and stored before any client sees the question. All attached controllers are asked; the
 * first valid answer is recorded and only then forwarded. Nothing is ever answered yes by default.
 */
import {
  type JsonObject,
  type ResponseMessage,
  isObject,
  requestText,
  responseText,
  withId,
} from '../../protocol/json-rpc.ts';
import { advertises, capabilityFor } from '../../protocol/methods.ts';
import { UPDATE_KINDS } from '../../protocol/v1/update-kinds.ts';
import { memberAt, setValue, splice, stringifyWire, valueAt } from '../../protocol/wire-text.ts';
import type { AgentRequest } from './agent-request.ts';
import type { Client } from './client.ts';
import type { Session } from './session.ts';
import { withSidecarMeta } from './sidecar-meta.ts';

const MAX_INVALID = 3;

interface Card {
  readonly requestId: string;
  answered: 'no' | 'error' | 'cancelled' | 'invalid';
}

interface Approval {
  readonly approvalId: string;
  readonly request: AgentRequest;
  readonly toolCallId: string | undefined;
  readonly cards: Map<Client, Card>;
  readonly invalid: Map<Client, number>;
  state: 'recording' | 'pending' | 'resolving';
  seq: number;
  reopened: boolean;
  timer: NodeJS.Timeout | undefined;
}

export class Approvals {
  readonly #session: Session;
  readonly #open = new Map<string, Approval>();

  constructor(session: Session) {
    this.#session = session;
  }

  get pending(): number {
    return this.#open.size;
  }

  /** The agent asks. */
  ask(request: AgentRequest): void {
    const { params } = request;
    const toolCall = params['toolCall'];
    const toolCallId = isObject(toolCall) ? toolCall['toolCallId'] : params['toolCallId'];
    const id = typeof toolCallId === 'string' ? toolCallId : undefined;
    const approval: Approval = {
      approvalId: this.#reopenable(id) ?? this.#session.host.newId(),
      request,
      toolCallId: id,
      cards: new Map(),
      invalid: new Map(),
      state: 'recording',
      seq: 0,
      reopened: false,
      timer: undefined,
    };
    approval.reopened = this.#session.state.approvals.has(approval.approvalId);
    if (id !== undefined && !this.#session.state.tools.has(id)) this.#introduceTool(request.paramsText, id);
    this.#open.set(approval.approvalId, approval);
    const type = approval.reopened ? 'approval_reopened' : 'approval_requested';
    this.#session.record(
      {
        type,
        required: true,
        turnId: this.#session.turns.current?.turnId,
        toolCallId: id,
        payload: `{"approvalId":${stringifyWire(approval.approvalId)},"method":${stringifyWire(request.method)},"params":${request.paramsText}}`,
      },
      { settled: (seq) => this.#recorded(approval, seq) },
    );
  }

  /** Asks an attachment's client about everything that is pending, at its position after the response. */
  oweCards(client: Client): void {
    for (const approval of this.#open.values()) if (approval.state === 'pending') this.#card(approval, client);
  }

  /** `session/cancel`: everything that is pending is resolved as cancelled. */
  cancelAll(): void {
    for (const approval of this.#open.values()) this.#cancel(approval);
  }

  /** The agent's own `$/cancel_request`. False when the id is not an approval's. */
  cancelByAgent(agentRequestId: string): boolean {
    for (const approval of this.#open.values()) {
      if (approval.request.id !== agentRequestId) continue;
      this.#cancel(approval);
      return true;
    }
    return false;
  }

  withdrawFrom(client: Client): void {
    for (const approval of this.#open.values()) this.#withdraw(approval, client);
  }

  clientLeft(client: Client): void {
    for (const approval of this.#open.values()) {
      const card = approval.cards.get(client);
      if (!card) continue;
      client.forget(card.requestId);
      approval.cards.delete(client);
      if (approval.state === 'pending') this.#settleUnanswered(approval);
    }
  }

  /** Whoever asked is gone: shown as interrupted, not a button any more. */
  agentExited(): void {
    this.interruptAll('the agent is gone');
  }

  interruptAll(why: string): void {
    for (const approval of this.#open.values()) {
      this.#close(approval);
      if (approval.state === 'resolving') continue;
      const { approvalId, toolCallId } = approval;
      const payload = stringifyWire({ approvalId, reason: why });
      this.#session.record({ type: 'approval_interrupted', required: true, toolCallId, payload, synthetic: true });
    }
  }

  close(): void {
    for (const approval of this.#open.values()) clearTimeout(approval.timer);
  }

  #recorded(approval: Approval, seq: number): void {
    approval.seq = seq;
    if (approval.state !== 'recording') return;
    approval.state = 'pending';
    for (const client of this.#session.clients.keys()) this.#card(approval, client);
    const { approvalTimeoutMs } = this.#session.host.config;
    if (approvalTimeoutMs !== undefined) {
      approval.timer = setTimeout(() => this.#timeOut(approval), approvalTimeoutMs);
    }
  }

  #card(approval: Approval, client: Client): void {
    const { request } = approval;
    const attachment = this.#session.clients.get(client);
    if (!attachment || client.role !== 'controller' || approval.cards.has(client)) return;
    const capability = capabilityFor(request.method, request.params);
    if (capability !== undefined && !advertises(client.capabilities, capability)) return;
    if ((approval.invalid.get(client) ?? 0) >= MAX_INVALID) return;
    const requestId = client.expect((answer) => {
      if (answer !== 'gone') this.#answer(approval, client, answer);
    });
    approval.cards.set(client, { requestId, answered: 'no' });
    const { approvalId } = approval;
    const eventId = this.#session.eventId({ seq: approval.seq, offset: 0 });
    const sidecar = { approvalId, eventId, ...(approval.reopened ? { reopened: true } : {}) };
    const params = withSidecarMeta(this.#publicParams(request.paramsText), sidecar);
    const wire = requestText(requestId, request.method, params);
    attachment.owe({ seq: approval.seq, offset: 0, what: 'card', wire, requestId });
    client.kick();
  }

  #answer(approval: Approval, client: Client, answer: ResponseMessage): void {
    const card = approval.cards.get(client);
    if (!card || approval.state !== 'pending' || card.answered !== 'no') return;
    const verdict = judge(approval.request, answer);
    if (verdict === 'valid') {
      approval.cards.delete(client);
      this.#resolve(approval, answer, client);
      return;
    }
    if (verdict === 'invalid') {
      approval.cards.delete(client);
      approval.invalid.set(client, (approval.invalid.get(client) ?? 0) + 1);
      this.#session.logger.warn({ approvalId: approval.approvalId, clientId: client.clientId }, 'invalid answer');
      this.#card(approval, client);
      return;
    }
    card.answered = verdict;
    this.#settleUnanswered(approval, answer, client);
  }

  /** Nobody is left who may still answer, although there are clients: the last word counts. */
  #settleUnanswered(approval: Approval, answer?: ResponseMessage, client?: Client): void {
    const cards = [...approval.cards.values()];
    if (cards.length === 0 || cards.some((card) => card.answered === 'no')) return;
    if (cards.some((card) => card.answered === 'cancelled')) this.#cancel(approval);
    else if (answer) this.#resolve(approval, answer, client);
  }

  /** Records an answer and forwards it when that is durable. */
  #resolve(approval: Approval, answer: ResponseMessage, client: Client | undefined): void {
    const { request } = approval;
    const found = answer.result ?? answer.error;
    const text = found ? answer.wire.slice(found.valueStart, found.valueEnd) : 'null';
    const outcome = answer.result ? (valueAt(text, ['outcome']) ?? text) : 'null';
    const by = client && { clientId: client.clientId, name: client.name };
    const forward = (): void => request.agent.respond(withId(answer, request.id));
    this.#finish(approval, `"outcome":${outcome},"answer":${text},"by":${stringifyWire(by ?? null)}`, forward);
  }

  #cancel(approval: Approval): void {
    if (approval.state === 'resolving') return;
    const { request } = approval;
    const result = request.method === 'session/request_permission' ? CANCELLED_PERMISSION : CANCELLED_ELICITATION;
    const outcome = valueAt(result, ['outcome']) ?? result;
    this.#finish(approval, `"outcome":${outcome},"answer":${result},"by":null`, () =>
      request.agent.respond(responseText(request.id, result)),
    );
  }

  #timeOut(approval: Approval): void {
    if (approval.state !== 'pending') return;
    const options = approval.request.params['options'];
    const reject = Array.isArray(options)
      ? options.find((option: unknown): option is JsonObject => isObject(option) && option['kind'] === 'reject_once')
      : undefined;
    const { request } = approval;
    if (request.method !== 'session/request_permission') {
      const result = '{"action":"decline"}';
      this.#finish(approval, `"outcome":${result},"answer":${result},"by":null,"timeout":true`, () =>
        request.agent.respond(responseText(request.id, result)),
      );
    } else if (reject) {
      const outcome = stringifyWire({ outcome: 'selected', optionId: reject['optionId'] });
      const result = `{"outcome":${outcome}}`;
      this.#finish(approval, `"outcome":${outcome},"answer":${result},"by":null,"timeout":true`, () =>
        request.agent.respond(responseText(request.id, result)),
      );
    } else this.#cancel(approval);
  }

  #finish(approval: Approval, members: string, forward: () => void): void {
    approval.state = 'resolving';
    const { approvalId, toolCallId } = approval;
    const cancelled = members.startsWith('"outcome":{"outcome":"cancelled"') || members.includes('"action":"cancel"');
    // A cancelled outcome is never consent: on a full disk the agent need not wait for it to be written.
    const early = cancelled && this.#session.order.stalled;
    if (early) forward();
    this.#session.record(
      {
        type: 'approval_resolved',
        required: true,
        turnId: this.#session.turns.current?.turnId,
        toolCallId,
        payload: `{"approvalId":${stringifyWire(approvalId)},${members}}`,
      },
      {
        settled: () => {
          this.#close(approval);
          if (!early) forward();
        },
      },
    );
  }

  /** Takes the approval off all screens. */
  #close(approval: Approval): void {
    clearTimeout(approval.timer);
    this.#open.delete(approval.approvalId);
    for (const client of approval.cards.keys()) this.#withdraw(approval, client);
  }

  #withdraw(approval: Approval, client: Client): void {
    const card = approval.cards.get(client);
    const attachment = this.#session.clients.get(client);
    approval.cards.delete(client);
    if (!card || card.answered !== 'no' || !attachment) return;
    client.forget(card.requestId);
    const wire = `{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":${card.requestId}}}`;
    attachment.withdrawCard(card.requestId, { ...this.#session.order.tip, what: 'answer', wire });
    client.kick();
  }

  /** Gemini, Qwen and Codex ask before they say what they ask about. */
  #introduceTool(paramsText: string, toolCallId: string): void {
    const toolCall = valueAt(paramsText, ['toolCall']);
    if (toolCall === undefined) return;
    const inner = toolCall.slice(toolCall.indexOf('{') + 1, toolCall.lastIndexOf('}')).trim();
    const title = valueAt(toolCall, ['title']) === undefined ? `,"title":${stringifyWire(toolCallId)}` : '';
    const wire = `{"sessionUpdate":"tool_call",${inner}${title}}`;
    this.#session.recordUpdate({ wire }, UPDATE_KINDS.tool_call, toolCallId, true);
  }

  #reopenable(toolCallId: string | undefined): string | undefined {
    if (toolCallId === undefined) return undefined;
    for (const [approvalId, known] of this.#session.state.approvals) {
      if (known.toolCallId === toolCallId && known.state === 'interrupted' && !this.#open.has(approvalId))
        return approvalId;
    }
    return undefined;
  }

  #publicParams(params: string): string {
    const found = memberAt(params, ['sessionId']);
    return found ? splice(params, [setValue(found, stringifyWire(this.#session.sessionId))]) : params;
  }
}

const CANCELLED_PERMISSION = '{"outcome":{"outcome":"cancelled"}}';
const CANCELLED_ELICITATION = '{"action":"cancel"}';

/** What an answer is worth. */
function judge(request: AgentRequest, answer: ResponseMessage): 'valid' | 'invalid' | 'error' | 'cancelled' {
  if (answer.error) return 'error';
  const result = answer.value['result'];
  if (!isObject(result)) return 'invalid';
  if (request.method !== 'session/request_permission') {
    const action = result['action'];
    if (action === 'cancel') return 'cancelled';
    return action === 'accept' || action === 'decline' || (typeof action === 'string' && action.startsWith('_'))
      ? 'valid'
      : 'invalid';
  }
  const outcome = result['outcome'];
  if (!isObject(outcome)) return 'invalid';
  if (outcome['outcome'] === 'cancelled') return 'cancelled';
  const options = request.params['options'];
  const offered =
    Array.isArray(options) &&
    options.some((option: unknown) => isObject(option) && option['optionId'] === outcome['optionId']);
  return outcome['outcome'] === 'selected' && offered ? 'valid' : 'invalid';
}
