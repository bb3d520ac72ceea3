/**
 * What a client is shown of an event that is not a plain update: the user's message, turns, approvals, bindings, and
 * what could not be kept.
 */
import { kindOfError } from '../../protocol/error.ts';
import { EVENT_TYPES } from '../../protocol/event.ts';
import { blockId, settledId } from '../../protocol/event-id.ts';
import { notificationText } from '../../protocol/json-rpc.ts';
import { prunedSnapshots } from '../../protocol/v1/pruned-state.ts';
import { UPDATE_KINDS } from '../../protocol/v1/update-kinds.ts';
import { decodeWire, items, parseWire, stringifyWire, valueAt } from '../../protocol/wire-text.ts';
import type { StoredEvent } from '../../storage/event-codec.ts';
import type { Attachment } from './attachment.ts';
import { envelopeHead, envelopeTail } from './envelope.ts';
import { rfdUpdates } from './rfd-updates.ts';

/** What all messages of a session have in common. */
export interface Envelope {
  readonly sessionId: string;
  readonly logId: string;
  readonly head: string;
}

export function envelopeOf(sessionId: string, logId: string): Envelope {
  return { sessionId, logId, head: envelopeHead(sessionId) };
}

/** Members of `_meta.sidecar` for a client that opted in. */
export function sidecarMembers(event: Pick<StoredEvent, 'turnId' | 'time' | 'synthetic'>): string {
  let text = `"time":${event.time}`;
  if (event.turnId !== undefined) text += `,"turnId":${stringifyWire(event.turnId)}`;
  if (event.synthetic) text += ',"synthetic":true';
  return text;
}

type AroundUpdate = Pick<
  StoredEvent,
  'meta' | 'childSessionId' | 'paramsRest' | 'envelopeRest' | 'turnId' | 'time' | 'synthetic'
>;

/** What stands before and behind an update. */
export function aroundUpdate(
  envelope: Envelope,
  event: AroundUpdate,
  eventId: string,
  isReplay: boolean,
  sidecar: boolean,
  transient = false,
): [head: string, tail: string] {
  const head = event.childSessionId === undefined ? envelope.head : envelopeHead(decodeWire(event.childSessionId));
  const { meta, paramsRest, envelopeRest } = event;
  const members = sidecar ? sidecarMembers(event) + (transient ? ',"transient":true' : '') : '';
  return [head, envelopeTail({ eventId, isReplay, sidecar: members, meta, paramsRest, envelopeRest })];
}

/** An update in its whole envelope. */
export function renderUpdate(
  envelope: Envelope,
  event: AroundUpdate,
  update: string,
  eventId: string,
  isReplay: boolean,
  sidecar: boolean,
  transient = false,
): string {
  const [head, tail] = aroundUpdate(envelope, event, eventId, isReplay, sidecar, transient);
  return head + update + tail;
}

export interface Rendered {
  /** Position inside the event after this message; undefined: after the event. */
  readonly offset?: number;
  readonly wire: string;
}

/** The messages of an event from its part `from` on. Empty when this client is shown nothing. */
export function renderEvent(
  envelope: Envelope,
  event: StoredEvent,
  attachment: Attachment,
  isReplay: boolean,
  from: number,
): Rendered[] {
  const { view } = attachment;
  switch (event.type) {
    case 'turn_started':
      return renderPrompt(envelope, event, attachment, isReplay, from);
    case 'missing': {
      const detail = parseWire(event.payload) as { text: string };
      const update = textUpdate('agent_message_chunk', `[${detail.text}]`);
      const eventId = settledId(envelope.logId, event.seq);
      return [{ wire: renderUpdate(envelope, event, update, eventId, isReplay, view.sidecar) }];
    }
    case 'session_bound': {
      const bound = parseWire(event.payload) as { how: string; note?: string };
      const eventId = settledId(envelope.logId, event.seq);
      const shown: Rendered[] = [];
      if (bound.note !== undefined) {
        const update = textUpdate('agent_message_chunk', bound.note);
        shown.push({ wire: renderUpdate(envelope, event, update, eventId, isReplay, view.sidecar) });
      }
      if (view.sidecar) {
        const params = { sessionId: envelope.sessionId, state: 'ready', continuity: bound.how, eventId };
        shown.push({ wire: notificationText('_sidecar/agent', stringifyWire(params)) });
      }
      return shown;
    }
    case 'pruned': {
      // What is gone has left its last values behind; those of config options are in the response.
      const eventId = settledId(envelope.logId, event.seq);
      return prunedSnapshots(event.payload)
        .filter(([kind]) => kind !== UPDATE_KINDS.config_option_update && !view.hidden.has(kind))
        .map(([, update]) => ({ wire: renderUpdate(envelope, event, update, eventId, isReplay, view.sidecar) }));
    }
    case 'turn_queued':
      return view.sidecar ? [{ wire: renderTurn(envelope, event) }] : [];
    case 'turn_ended':
      return [
        ...rfdUpdates(envelope, event, attachment),
        ...(view.sidecar ? [{ wire: renderTurn(envelope, event) }] : []),
      ];
    case 'approval_requested':
    case 'approval_resolved':
    case 'approval_interrupted':
    case 'approval_reopened':
      return [
        ...rfdUpdates(envelope, event, attachment),
        ...(view.sidecar ? [{ wire: renderApproval(envelope, event) }] : []),
      ];
    default:
      return [];
  }
}

/** An update of ours that shows a text. */
export function textUpdate(kind: 'agent_message_chunk' | 'user_message_chunk', text: string): string {
  return stringifyWire({ sessionUpdate: kind, content: { type: 'text', text } });
}

/** The user's message: one chunk per block, `messageId` is the turn's id. Its sender has it on its screen already. */
function renderPrompt(
  envelope: Envelope,
  event: StoredEvent,
  attachment: Attachment,
  isReplay: boolean,
  from: number,
): Rendered[] {
  const { view } = attachment;
  const prompt = valueAt(event.payload, ['prompt']) ?? '[]';
  const blocks = items(prompt);
  const shown: Rendered[] = [];
  const facts = parseWire(promptFacts(event.payload)) as { promptId?: string; clientId?: string };
  const own = facts.promptId !== undefined && view.clientId !== undefined && facts.clientId === view.clientId;
  if (event.turnId === undefined || !attachment.ownTurns.has(event.turnId)) {
    const messageId = stringifyWire(event.turnId ?? '');
    const extra = own ? `,"promptId":${stringifyWire(facts.promptId)}` : '';
    for (let i = from; i < blocks.length; i++) {
      const [start, end] = blocks[i] as [number, number];
      const update = `{"sessionUpdate":"user_message_chunk","content":${prompt.slice(start, end)},"messageId":${messageId}}`;
      const last = i === blocks.length - 1;
      const eventId = last ? settledId(envelope.logId, event.seq) : blockId(envelope.logId, event.seq, i + 1);
      const sidecar = view.sidecar ? sidecarMembers(event) + extra : '';
      const wire = envelope.head + update + envelopeTail({ eventId, isReplay, sidecar });
      shown.push(last ? { wire } : { wire, offset: i + 1 });
    }
    shown.push(...rfdUpdates(envelope, event, attachment));
  }
  if (view.sidecar) shown.push({ wire: renderTurn(envelope, event) });
  return shown;
}

/** The payload of a `turn_started` without its prompt. */
export function promptFacts(payload: string): string {
  return valueAt(payload, ['facts']) ?? '{}';
}

function renderTurn(envelope: Envelope, event: StoredEvent): string {
  const eventId = settledId(envelope.logId, event.seq);
  const base = { sessionId: envelope.sessionId, turnId: event.turnId, eventId };
  if (event.type === 'turn_ended') {
    const ended = parseWire(event.payload) as {
      response?: { stopReason?: string };
      error?: { code?: number; message?: string; data?: unknown };
      code?: string;
      message?: string;
    };
    const kind = ended.code === undefined ? (kindOfError(ended.error ?? {}) ?? 'agent_error') : 'interrupted';
    const message = ended.error?.message ?? ended.message;
    const error = ended.response ? undefined : { kind, message, code: ended.code };
    const params = { ...base, state: 'ended', stopReason: ended.response?.stopReason, error };
    return notificationText('_sidecar/turn', stringifyWire(params));
  }
  const { promptId, clientId } = parseWire(promptFacts(event.payload)) as { promptId?: string; clientId?: string };
  const state = event.type === 'turn_queued' ? 'queued' : 'running';
  return notificationText('_sidecar/turn', stringifyWire({ ...base, state, promptId, clientId }));
}

const APPROVAL_STATES = {
  approval_requested: 'pending',
  approval_resolved: 'resolved',
  approval_interrupted: 'interrupted',
  approval_reopened: 'reopened',
} as const;

function renderApproval(envelope: Envelope, event: StoredEvent): string {
  const { approvalId, outcome, by, previousOutcome } = parseWire(event.payload) as {
    approvalId: string;
    outcome?: { outcome?: string; action?: string };
    by?: unknown;
    previousOutcome?: unknown;
  };
  const cancelled = outcome?.outcome === 'cancelled' || outcome?.action === 'cancel';
  const state = APPROVAL_STATES[event.type as keyof typeof APPROVAL_STATES];
  const params = {
    sessionId: envelope.sessionId,
    approvalId,
    toolCallId: event.toolCallId,
    state: event.type === 'approval_resolved' && cancelled ? 'cancelled' : state,
    outcome,
    previousOutcome,
    by: by ?? undefined,
    eventId: settledId(envelope.logId, event.seq),
  };
  return notificationText('_sidecar/approval', stringifyWire(params));
}

/** Types and kinds by number, for the pump's quick look. */
export const UPDATE_TYPE: number = EVENT_TYPES.update;
export const USER_CHUNK: number = UPDATE_KINDS.user_message_chunk;
