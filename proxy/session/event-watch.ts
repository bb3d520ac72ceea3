/**
 * Metrics and log lines about turns, approvals and the life of a session, taken from where all of them pass: the events
 * that are recorded. Updates do not come here. A line is written when its event is durable, with its eventId, and holds
 * ids, outcomes and times, never what was said.
 */
import type { EventFields } from '../../protocol/event.ts';
import { decodeWire, parseWire, valueAt } from '../../protocol/wire-text.ts';
import { type ApprovalOutcome, type MessageDrop, type Metrics, type TurnOutcome, turnOutcome } from '../metrics.ts';
import type { AppendOptions } from './order.ts';
import type { Session } from './session.ts';

type Recorded = Omit<EventFields, 'time'>;
type Facts = Readonly<Record<string, unknown>>;

export class EventWatch {
  readonly #metrics: Metrics;
  readonly #now: () => number;
  /** Approvals that are open, by approvalId: when they were asked for, and the options that refuse. */
  readonly #asked = new Map<string, { readonly at: number; readonly refusals: ReadonlySet<string> }>();

  constructor(metrics: Metrics, now: () => number) {
    this.#metrics = metrics;
    this.#now = now;
  }

  /** The options to append an event with, so that it is counted and logged once it is durable. */
  watched(session: Session, event: Recorded, options: AppendOptions): AppendOptions {
    if (event.type.startsWith('approval_')) this.#approvalBegins(event);
    return {
      ...options,
      settled: (seq) => {
        options.settled?.(seq);
        this.#durable(session, event, seq);
      },
      ...(options.refused && {
        refused: (message: string) => {
          options.refused?.(message);
          if (event.type === 'turn_queued' || event.type === 'turn_started') this.#metrics.turnEnded('not_persisted');
        },
      }),
    };
  }

  messageDropped(cause: MessageDrop): void {
    this.#metrics.messageDropped(cause);
  }

  #approvalBegins({ type, payload }: Recorded): void {
    if (type !== 'approval_requested' && type !== 'approval_reopened') return;
    const id = textAt(payload, 'approvalId');
    if (id !== undefined) this.#asked.set(id, { at: this.#now(), refusals: refusalsOf(payload) });
  }

  #durable(session: Session, event: Recorded, seq: number): void {
    const facts = this.#factsOf(event);
    if (!facts) return;
    const eventId = session.eventId({ seq, offset: 0 });
    const { turnId, toolCallId } = event;
    session.logger.info({ turnId, toolCallId, eventId, ...facts }, event.type.replaceAll('_', ' '));
  }

  #factsOf(event: Recorded): Facts | undefined {
    switch (event.type) {
      case 'turn_queued':
      case 'turn_started': {
        const facts = valueAt(event.payload, ['facts']) ?? '{}';
        return { clientId: textAt(facts, 'clientId'), traceparent: textAt(facts, 'traceparent') };
      }
      case 'turn_ended':
        return this.#turnEnded(event);
      case 'approval_requested':
      case 'approval_reopened':
        return { approvalId: textAt(event.payload, 'approvalId'), method: textAt(event.payload, 'method') };
      case 'approval_resolved':
      case 'approval_interrupted':
        return this.#approvalEnded(event);
      case 'session_bound':
        return { how: textAt(event.payload, 'how') };
      case 'session_created':
      case 'session_forked':
      case 'session_closed':
      case 'pruned':
      case 'missing':
        return {};
      default:
        return undefined;
    }
  }

  #turnEnded({ payload, synthetic }: Recorded): Facts {
    const code = textAt(payload, 'code');
    const outcome = outcomeOf(payload);
    this.#metrics.turnEnded(outcome);
    return { outcome, code, synthetic: synthetic === true ? true : undefined };
  }

  #approvalEnded(event: Recorded): Facts {
    const approvalId = textAt(event.payload, 'approvalId') ?? '';
    const asked = this.#asked.get(approvalId);
    this.#asked.delete(approvalId);
    const outcome =
      event.type === 'approval_interrupted' ? 'interrupted' : approvalOutcome(event.payload, asked?.refusals);
    const waitedMs = asked && this.#now() - asked.at;
    this.#metrics.approvalEnded(outcome, waitedMs);
    const clientId = textAt(valueAt(event.payload, ['by']) ?? '{}', 'clientId');
    return { approvalId, outcome, waitedMs, clientId };
  }
}

function outcomeOf(payload: string): TurnOutcome {
  const outcome = textAt(payload, 'outcome');
  if (outcome === 'interrupted') return 'interrupted';
  return outcome === 'error' ? 'error' : turnOutcome(textAt(valueAt(payload, ['response']) ?? '{}', 'stopReason'));
}

/** What `approval_resolved` says: consent, refusal, or that nobody decided. */
function approvalOutcome(payload: string, refusals: ReadonlySet<string> | undefined): ApprovalOutcome {
  if (valueAt(payload, ['timeout']) === 'true') return 'timed_out';
  if (valueAt(payload, ['error']) !== undefined) return 'error';
  const answer = parseWire(valueAt(payload, ['answer']) ?? '{}') as {
    readonly action?: unknown;
    readonly outcome?: { readonly outcome?: unknown; readonly optionId?: unknown };
  } | null;
  if (answer?.action === 'accept') return 'allowed';
  if (answer?.action === 'decline') return 'rejected';
  if (answer?.outcome?.outcome !== 'selected') return 'cancelled';
  return refusals?.has(String(answer.outcome.optionId)) ? 'rejected' : 'allowed';
}

/** The ids of the options of kind `reject_once` and `reject_always`. */
function refusalsOf(payload: string): ReadonlySet<string> {
  const options = parseWire(valueAt(payload, ['params', 'options']) ?? '[]');
  const refusing = (Array.isArray(options) ? options : []).filter(
    (option: unknown): option is { optionId: string } =>
      typeof option === 'object' && option !== null && 'kind' in option && String(option.kind).startsWith('reject'),
  );
  return new Set(refusing.map(({ optionId }) => optionId));
}

function textAt(wire: string, key: string): string | undefined {
  const found = valueAt(wire, [key]);
  return found?.startsWith('"') ? (JSON.parse(decodeWire(found)) as string) : undefined;
}
