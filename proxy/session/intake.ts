/**
 * Where the agent's updates enter a session: classified, and put into the order as an event, as text of the run, or as
 * something transient.
 *
 *   text      -> order.text: joins the run
 *   progress  -> shown live, merged into the call's pending patch
 *   tool      -> the pending patch if it says more, then the event
 *   snapshot  -> event, unless it is what was last said
 *   transient -> shown live
 *   event     -> event
 */
import type { EventFields } from '../../protocol/event.ts';
import type { JsonObject } from '../../protocol/json-rpc.ts';
import { classifyUpdate } from '../../protocol/v1/classify.ts';
import { UPDATE_KINDS } from '../../protocol/v1/update-kinds.ts';
import { encodeWire } from '../../protocol/wire-text.ts';
import type { Attachment, View } from './attachment.ts';
import { isShown, updateFor } from './client-view.ts';
import { renderUpdate } from './render.ts';
import type { TextShape } from './run.ts';
import type { Session } from './session.ts';
import { type PendingPatch, patchUpdate, ToolProgress } from './tool-progress.ts';

/** An update of the agent, cut out of its envelope. Strings are wire text, but for `childSessionId`. */
export interface IncomingUpdate {
  readonly wire: string;
  readonly value: JsonObject;
  readonly meta?: string | undefined;
  readonly childSessionId?: string | undefined;
  readonly paramsRest?: string | undefined;
  readonly envelopeRest?: string | undefined;
}

/** A text chunk that was accepted: what the fast path may do with the next one like it. */
export interface AcceptedText {
  readonly shape: TextShape;
  /** Span of the text in the update. */
  readonly bodyStart: number;
  readonly bodyEnd: number;
}

/** Who has seen what an event says as live patches. */
type Seen = Pick<PendingPatch, 'seenBy' | 'childSessionId'>;

/** Events that some clients have seen live: kept until all those are past them. */
const MAX_SEEN = 64;

export class Intake {
  readonly #session: Session;
  readonly #owns = (view: View, terminalId: string): boolean => this.#session.ownsTerminal(view, terminalId);
  readonly #progress = new ToolProgress();
  /** Which attachments have seen an event as live patches, by its seq. */
  readonly #seen = new Map<number, Seen>();
  /** The same of events that are not committed yet. */
  readonly #unsettled = new Set<Seen>();
  #lastShape: TextShape | undefined;
  #lastUpdateAt = 0;
  #updates = 0;

  constructor(session: Session) {
    this.#session = session;
  }

  /** How many came so far, but for text on the fast path. */
  get updates(): number {
    return this.#updates;
  }

  /** The fast path: text of a shape that `update` has accepted before. False: take the long way. */
  text(shape: TextShape, body: string): boolean {
    const { replay, turns, order } = this.#session;
    if (replay?.holds || order.ended) return false;
    turns.updateSeen();
    order.text(shape, body, turns.current?.turnId);
    return true;
  }

  /** Takes an update; for a text chunk tells how the next one like it may be taken. */
  update(incoming: IncomingUpdate): AcceptedText | undefined {
    if (this.#session.order.ended) return undefined;
    this.#lastUpdateAt = this.#session.host.now();
    this.#updates++;
    const { replay } = this.#session;
    if (replay && !replay.admits(incoming)) {
      this.#session.host.watch.messageDropped('agent_replay');
      return undefined;
    }
    this.#session.turns.updateSeen();
    const classified = classifyUpdate(incoming.wire, incoming.value);
    const { kind } = classified;
    switch (classified.class) {
      case 'text':
        return this.#text(incoming, classified);
      case 'progress':
        this.#showsTerminals(classified.toolCallId, incoming);
        if (this.#isProgress(incoming, classified)) this.#showProgress(incoming, classified);
        else this.#tool(incoming, kind, classified.toolCallId, classified.fields);
        return undefined;
      case 'tool':
        this.#showsTerminals(classified.toolCallId, incoming);
        this.#tool(incoming, kind, classified.toolCallId, classified.fields);
        return undefined;
      case 'snapshot':
        if (this.#isRepeated(incoming, kind)) this.#pass(incoming, kind);
        else this.#session.recordUpdate(incoming, kind);
        return undefined;
      case 'transient':
        this.#pass(incoming, kind);
        return undefined;
      case 'event':
        this.#session.recordUpdate(incoming, kind);
        return undefined;
      default:
        return undefined;
    }
  }

  /** An update of ours to a tool call. @param seen attachments that show the same already */
  ownUpdate(wire: string, toolCallId: string, childSessionId: string | undefined, seen: Set<Attachment>): void {
    const patch = this.#progress.takeBefore(toolCallId, new Map([['content', '']]));
    if (patch) this.#recordPatch(patch);
    const turnId = this.#session.turns.current?.turnId;
    const event = { type: 'update' as const, payload: wire, turnId, toolCallId, childSessionId, synthetic: true };
    this.#recordSeen(event, seen);
  }

  /** Writes what is pending of tool progress: the turn or the agent has ended. */
  flush(): void {
    // It is part of what was read from the agent, and would keep that in memory.
    this.#lastShape = undefined;
    for (const patch of this.#progress.takeAll()) this.#recordPatch(patch);
  }

  /** An event that this attachment has seen as live patches. */
  skips(seq: number, attachment: Attachment): boolean {
    return this.#seen.size > 0 && (this.#seen.get(seq)?.seenBy.has(attachment) ?? false);
  }

  /** The attachment is gone or begins its view anew. @param child only that of a child, wire text */
  forget(attachment: Attachment, child?: string): void {
    for (const seen of [...this.#progress.all(), ...this.#unsettled, ...this.#seen.values()]) {
      const { childSessionId } = seen;
      const other = child !== undefined && (childSessionId === undefined || encodeWire(childSessionId) !== child);
      if (!other) seen.seenBy.delete(attachment);
    }
  }

  /** Owes an attachment the pending tool progress, which no event holds yet. @param child only that of a child, wire text */
  owePending(attachment: Attachment, child?: string): void {
    const { envelope, host, order } = this.#session;
    const { view } = attachment;
    const { sidecar } = view;
    for (const patch of this.#progress.all()) {
      const { turnId, seenBy } = patch;
      const childSessionId = patch.childSessionId === undefined ? undefined : encodeWire(patch.childSessionId);
      if (child !== undefined && childSessionId !== child) continue;
      if (!isShown(attachment, UPDATE_KINDS.tool_call_update, childSessionId)) continue;
      const facts = { turnId, time: host.now(), synthetic: false, childSessionId };
      const update = updateFor(view, UPDATE_KINDS.tool_call_update, patchUpdate(patch), this.#owns);
      // In the order, not at the position: the call itself may still wait for its commit.
      order.note((at) => {
        // It comes behind the replay: marked as one it would begin the view anew.
        const wire = renderUpdate(envelope, facts, update, this.#session.eventId(at), false, sidecar, sidecar);
        attachment.owe({ ...at, what: 'passing', wire });
        if ([...this.#session.clients.values()].includes(attachment)) seenBy.add(attachment);
      });
    }
  }

  /** Resolves when no update has come for `quietMs`, at the latest after `longestMs`. */
  quiet(quietMs: number, longestMs: number): Promise<void> {
    const { now } = this.#session.host;
    const started = now();
    return new Promise((resolve) => {
      const look = (): void => {
        const rest = Math.min(this.#lastUpdateAt + quietMs, started + longestMs) - now();
        if (rest <= 0) resolve();
        else setTimeout(look, rest);
      };
      setTimeout(look, quietMs);
    });
  }

  #showsTerminals(toolCallId: string, { wire, childSessionId }: IncomingUpdate): void {
    this.#session.clientRequests.terminals.toolUpdate(toolCallId, wire, childSessionId);
  }

  #text(
    incoming: IncomingUpdate,
    text: { readonly kind: number; readonly key: string; readonly bodyStart: number; readonly bodyEnd: number },
  ): AcceptedText | undefined {
    const { wire, meta, childSessionId, paramsRest, envelopeRest } = incoming;
    const { kind, bodyStart, bodyEnd } = text;
    const { turns, order } = this.#session;
    if (kind === UPDATE_KINDS.user_message_chunk) {
      // What a subagent is told is no echo of the prompt, whatever its words.
      if (childSessionId === undefined) {
        if (turns.isEcho(incoming.value)) return undefined;
        this.#session.state.userMessages++;
      }
    }
    const child = childSessionId === undefined ? undefined : encodeWire(childSessionId);
    // An empty id is an id, too.
    const speaker = childSessionId === undefined ? '' : JSON.stringify(childSessionId);
    const key = `${text.key} ${speaker} ${meta ?? ''} ${paramsRest ?? ''} ${envelopeRest ?? ''}`;
    if (bodyStart === bodyEnd) {
      // Nothing to join: unless its message is open, it begins one of its own and is kept as it is.
      if (order.openRun?.shape.key !== key) this.#session.recordUpdate(incoming, kind);
      return undefined;
    }
    const prefix = wire.slice(0, bodyStart);
    const suffix = wire.slice(bodyEnd);
    const last = this.#lastShape;
    const same = last && last.key === key && last.prefix === prefix && last.suffix === suffix;
    const shape = same ? last : { kind, key, prefix, suffix, meta, childSessionId: child, paramsRest, envelopeRest };
    this.#lastShape = shape;
    order.text(shape, wire.slice(bodyStart, bodyEnd), turns.current?.turnId);
    // A shape that is seen for the second time is worth a template. What a user says may be an echo and is looked at.
    return same && kind !== UPDATE_KINDS.user_message_chunk ? { shape, bodyStart, bodyEnd } : undefined;
  }

  /** Progress: a patch of a known call, without a change of its status and without anything of its own around it. */
  #isProgress(incoming: IncomingUpdate, patch: { toolCallId: string; status: string | undefined }): boolean {
    const tool = this.#session.state.tools.get(patch.toolCallId);
    if (!tool || (patch.status !== undefined && patch.status !== tool.status)) return false;
    return incoming.meta === undefined && incoming.paramsRest === undefined && incoming.envelopeRest === undefined;
  }

  #isRepeated(incoming: IncomingUpdate, kind: number): boolean {
    const { childSessionId, meta, paramsRest, envelopeRest } = incoming;
    if ((childSessionId ?? meta ?? paramsRest ?? envelopeRest) !== undefined) return false;
    return this.#session.state.snapshots.get(kind) === incoming.wire;
  }

  #showProgress(incoming: IncomingUpdate, patch: { toolCallId: string; fields: ReadonlyMap<string, string> }): void {
    const { toolCallId, fields } = patch;
    if (fields.size === 0) return;
    const turnId = this.#session.turns.current?.turnId;
    const atTip = (): Set<Attachment> => new Set([...this.#session.clients.values()].filter(({ behind }) => !behind));
    const { seenBy } = this.#progress.merge(toolCallId, fields, turnId, incoming.childSessionId, atTip);
    this.#pass(incoming, UPDATE_KINDS.tool_call_update, seenBy);
  }

  #tool(incoming: IncomingUpdate, kind: number, toolCallId: string, fields: ReadonlyMap<string, string>): void {
    const patch = this.#progress.takeBefore(toolCallId, fields);
    if (patch) this.#recordPatch(patch);
    this.#session.recordUpdate(incoming, kind, toolCallId);
  }

  #recordPatch(patch: PendingPatch): void {
    const { toolCallId, turnId, childSessionId, seenBy } = patch;
    const event = { type: 'update' as const, payload: patchUpdate(patch), turnId, toolCallId, childSessionId };
    this.#recordSeen(event, seenBy);
  }

  /** Appends an update of a tool call. @param seenBy who need not be sent it; read when the event is durable */
  #recordSeen(event: Omit<EventFields, 'time'>, seenBy: Set<Attachment>): void {
    const seen = { seenBy, childSessionId: event.childSessionId };
    this.#unsettled.add(seen);
    const settled = (seq: number): void => {
      this.#unsettled.delete(seen);
      if (this.#seen.size >= MAX_SEEN) this.#forgetPassed();
      if (seenBy.size > 0) this.#seen.set(seq, seen);
    };
    this.#session.record(event, { kind: UPDATE_KINDS.tool_call_update, settled });
  }

  #forgetPassed(): void {
    for (const [seq, seen] of this.#seen) {
      if ([...seen.seenBy].every((attachment) => attachment.position.seq >= seq)) this.#seen.delete(seq);
    }
  }

  /** Shows something transient at its place in the order, to those who are at the tip; others leave `seenBy`. */
  #pass(incoming: IncomingUpdate, kind: number, seenBy?: Set<Attachment>): void {
    const { order, turns, host, clients, envelope } = this.#session;
    const { wire, meta, paramsRest, envelopeRest } = incoming;
    const childSessionId = incoming.childSessionId === undefined ? undefined : encodeWire(incoming.childSessionId);
    const own = { meta, childSessionId, paramsRest, envelopeRest };
    const facts = { ...own, turnId: turns.current?.turnId, time: host.now(), synthetic: false };
    order.note((at) => {
      const eventId = this.#session.eventId(at);
      for (const [client, attachment] of clients) {
        const { view } = attachment;
        if (!isShown(attachment, kind, childSessionId)) continue;
        if (attachment.behind) {
          seenBy?.delete(attachment);
          continue;
        }
        const { sidecar } = view;
        const update = updateFor(view, kind, wire, this.#owns);
        const shown = renderUpdate(envelope, facts, update, eventId, false, sidecar, sidecar);
        attachment.owe({ ...at, what: 'passing', wire: shown });
        client.kick();
      }
    });
  }
}
