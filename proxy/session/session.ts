/**
 * A session: ties the log's order, the agent's updates and the clients together.
 *
 *   agent update -> update(): classify -> order (append | run | note) -> commit -> published -> clients' pumps
 *   client       -> turns / approvals / client requests -> order -> commit -> forwarded to the agent
 */
import { type RpcError, rpcError } from '../../protocol/error.ts';
import type { EventFields } from '../../protocol/event.ts';
import { type Position, chunkId, settledId } from '../../protocol/event-id.ts';
import type { JsonObject } from '../../protocol/json-rpc.ts';
import { classifyUpdate } from '../../protocol/v1/classify.ts';
import { type SessionState, applyEvent } from '../../protocol/v1/session-state.ts';
import { UPDATE_KINDS } from '../../protocol/v1/update-kinds.ts';
import { encodeWire, stringifyWire } from '../../protocol/wire-text.ts';
import type { EventLog, SessionRow } from '../../storage/event-log.ts';
import type { Config } from '../config.ts';
import type { Logger } from '../log.ts';
import { Approvals } from './approvals.ts';
import type { BoundOutcome } from './agent-port.ts';
import { Attachment } from './attachment.ts';
import type { Client } from './client.ts';
import { ClientRequests } from './client-requests.ts';
import { type AppendOptions, Order } from './order.ts';
import type { PumpSource } from './pump.ts';
import { type Envelope, envelopeOf, renderUpdate } from './render.ts';
import type { TextShape } from './run.ts';
import { type PendingPatch, ToolProgress, patchUpdate } from './tool-progress.ts';
import { Turns } from './turns.ts';

/** What a session needs from the house. */
export interface SessionHost {
  readonly log: EventLog;
  readonly boot: string;
  readonly config: Config;
  readonly logger: Logger;
  readonly now: () => number;
  /** A new random id: a UUID. */
  readonly newId: () => string;
  /** The session has something to commit or to show; coalesced. */
  touched(session: Session): void;
  /** Makes sure the session lives in the agent. */
  bind(session: Session): Promise<BoundOutcome> | BoundOutcome;
  /** The store can take no more, or again. */
  stalled(session: Session, message: string | undefined): void;
  damaged(session: Session, error: RpcError): void;
}

/** An update of the agent, cut out of its envelope. Strings are wire text. */
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
  readonly bodyStart: number;
  readonly bodyEnd: number;
}

export class Session implements PumpSource {
  readonly host: SessionHost;
  readonly order: Order;
  readonly state: SessionState;
  readonly envelope: Envelope;
  readonly turns: Turns;
  readonly approvals: Approvals;
  readonly clientRequests: ClientRequests;
  readonly progress = new ToolProgress();
  readonly clients = new Map<Client, Attachment>();
  readonly logger: Logger;
  /** The agent session that it lives in now; undefined until it is bound in this agent life. */
  agentSessionId: string | undefined;
  /** The agent replays what the log has: nothing of it is kept. */
  swallowing = false;
  /** A bind that is under way. */
  binding: Promise<BoundOutcome> | undefined;
  /** The log cannot be read: every use is refused with this. */
  damage: RpcError | undefined;
  lastActive = 0;
  #row: SessionRow;
  readonly #skips = new Map<number, Set<Attachment>>();
  #lastShape: TextShape | undefined;
  #lastUpdateAt = 0;

  constructor(host: SessionHost, row: SessionRow, state: SessionState, head: number) {
    this.host = host;
    this.#row = row;
    this.state = state;
    this.envelope = envelopeOf(row.sessionId, row.logId);
    this.logger = host.logger.child({ sessionId: row.sessionId });
    this.order = new Order({
      num: row.num,
      head,
      boot: host.boot,
      now: host.now,
      touched: () => host.touched(this),
      stalled: (message) => host.stalled(this, message),
    });
    this.turns = new Turns(this);
    this.approvals = new Approvals(this);
    this.clientRequests = new ClientRequests(this);
  }

  get log(): EventLog {
    return this.host.log;
  }

  get boot(): string {
    return this.host.boot;
  }

  get sessionId(): string {
    return this.#row.sessionId;
  }

  get row(): SessionRow {
    return this.#row;
  }

  /** Changes the index row; written with the next commit. */
  setRow(change: Partial<SessionRow>): void {
    this.#row = { ...this.#row, ...change };
    this.order.setRow(this.#row);
  }

  /** The cursor of a position. */
  eventId(at: Position): string {
    const { logId } = this.envelope;
    return at.offset === 0 ? settledId(logId, at.seq) : chunkId(logId, at.seq + 1, this.boot, at.offset);
  }

  /** Appends an event and folds it into the state. Ids are ordinary strings, the rest is wire text. */
  record(event: Omit<EventFields, 'time'>, options: AppendOptions = {}, value?: JsonObject): void {
    const { kind = 0 } = options;
    const { type, turnId, toolCallId, childSessionId, payload } = event;
    this.order.append(
      {
        ...event,
        toolCallId: toolCallId === undefined ? undefined : encodeWire(toolCallId),
        childSessionId: childSessionId === undefined ? undefined : encodeWire(childSessionId),
      },
      options,
    );
    applyEvent(this.state, {
      seq: this.order.lastSeq,
      type,
      kind,
      turnId,
      toolCallId,
      childSessionId,
      payload: () => payload,
      value,
    });
    if (kind === UPDATE_KINDS.session_info_update && this.state.title !== this.#row.title) {
      this.setRow({ title: this.state.title ?? null });
    }
  }

  /** The fast path: text of a shape that `update` has accepted before. */
  text(shape: TextShape, body: string): boolean {
    if (this.swallowing) return false;
    this.turns.updateSeen();
    this.order.text(shape, body, this.turns.current?.turnId);
    return true;
  }

  /** Takes an update of the agent; for a text chunk tells how the next one like it may be taken. */
  update(incoming: IncomingUpdate): AcceptedText | undefined {
    this.#lastUpdateAt = this.host.now();
    if (this.swallowing) return undefined;
    this.turns.updateSeen();
    const classified = classifyUpdate(incoming.wire, incoming.value);
    const { kind } = classified;
    switch (classified.class) {
      case 'text':
        return this.#textUpdate(incoming, classified);
      case 'progress': {
        const tool = this.state.tools.get(classified.toolCallId);
        const changes = classified.status !== undefined && classified.status !== tool?.status;
        if (tool && !changes && incoming.meta === undefined && incoming.paramsRest === undefined) {
          this.#progressUpdate(incoming, classified.toolCallId, classified.fields);
        } else this.#toolUpdate(incoming, kind, classified.toolCallId, classified.fields);
        return undefined;
      }
      case 'tool':
        this.#toolUpdate(incoming, kind, classified.toolCallId, classified.fields);
        return undefined;
      case 'snapshot':
        if (incoming.childSessionId === undefined && this.state.snapshots.get(kind) === incoming.wire) {
          this.passing(incoming, kind);
        } else this.recordUpdate(incoming, kind);
        return undefined;
      case 'transient':
        this.passing(incoming, kind);
        return undefined;
      case 'event':
        this.recordUpdate(incoming, kind);
        return undefined;
      default:
        return undefined;
    }
  }

  recordUpdate(
    incoming: Omit<IncomingUpdate, 'value'> & { readonly value?: JsonObject },
    kind: number,
    toolCallId?: string,
    synthetic = false,
  ): void {
    const { wire, value, meta, childSessionId, paramsRest, envelopeRest } = incoming;
    const turnId = this.turns.current?.turnId;
    const envelope = { meta, childSessionId, paramsRest, envelopeRest };
    this.record({ type: 'update', payload: wire, turnId, toolCallId, synthetic, ...envelope }, { kind }, value);
  }

  /** Shows something transient at its place in the order, to those who are at the tip. */
  passing(incoming: Omit<IncomingUpdate, 'value'>, kind: number, patchOf?: string): void {
    const turnId = this.turns.current?.turnId;
    const facts = { ...incoming, turnId, time: this.host.now(), synthetic: false };
    this.order.note((at) => {
      const eventId = this.eventId(at);
      for (const [client, attachment] of this.clients) {
        if (attachment.view.hidden.has(kind)) continue;
        if (attachment.behind) {
          if (patchOf !== undefined) attachment.seenPatches.delete(patchOf);
          continue;
        }
        const { sidecar } = attachment.view;
        const wire = renderUpdate(this.envelope, facts, incoming.wire, eventId, false, sidecar, sidecar);
        attachment.owe({ ...at, what: 'passing', wire });
        client.kick();
      }
    });
  }

  /** Shows a notification that is not an update, at its place in the order. */
  notifyClients(wire: string): void {
    this.order.note((at) => {
      for (const [client, attachment] of this.clients) {
        if (attachment.behind) continue;
        attachment.owe({ ...at, what: 'passing', wire });
        client.kick();
      }
    });
  }

  /** Writes what is pending of tool progress: the turn or the agent has ended. */
  flushProgress(): void {
    for (const patch of this.progress.takeAll()) this.#recordPatch(patch);
  }

  skips(seq: number, attachment: Attachment): boolean {
    return this.#skips.size > 0 && (this.#skips.get(seq)?.has(attachment) ?? false);
  }

  damaged(seq: number, detail: string): void {
    this.host.damaged(this, rpcError('log_damaged', `event ${seq}: ${detail}`, { sessionId: this.sessionId, seq }));
  }

  /** Puts a client on the session at a position, or moves it there when it is on it already. */
  attach(client: Client, position: Position): Attachment {
    this.lastActive = this.host.now();
    const known = this.clients.get(client);
    if (known) {
      this.approvals.withdrawFrom(client);
      for (const seen of this.#skips.values()) seen.delete(known);
      known.restart(position);
      return known;
    }
    const attachment = new Attachment(position, client);
    this.clients.set(client, attachment);
    return attachment;
  }

  detach(client: Client): void {
    const attachment = this.clients.get(client);
    if (!attachment) return;
    this.clients.delete(client);
    for (const seen of this.#skips.values()) seen.delete(attachment);
    this.approvals.clientLeft(client);
    this.clientRequests.clientLeft(client);
  }

  /** What a client that attaches is owed at `at`, before its response. */
  owePending(attachment: Attachment, at: Position): void {
    for (const patch of this.progress.all()) {
      if (attachment.view.hidden.has(UPDATE_KINDS.tool_call_update)) continue;
      const { sidecar } = attachment.view;
      const facts = {
        turnId: patch.turnId,
        time: this.host.now(),
        synthetic: false,
        childSessionId: patch.childSessionId,
      };
      const wire = renderUpdate(this.envelope, facts, patchUpdate(patch), this.eventId(at), false, sidecar, sidecar);
      attachment.owe({ ...at, what: 'passing', wire });
      attachment.seenPatches.add(patch.toolCallId);
    }
  }

  /** The agent process is gone. */
  agentExited(message: string): void {
    this.agentSessionId = undefined;
    this.swallowing = false;
    this.flushProgress();
    this.order.closeRun();
    this.approvals.agentExited();
    this.clientRequests.agentExited();
    this.turns.agentExited(message);
  }

  /** Resolves when no update has come for `quietMs`, at the latest after `longestMs`. */
  quiet(quietMs: number, longestMs: number): Promise<void> {
    const started = this.host.now();
    return new Promise((resolve) => {
      const look = (): void => {
        const now = this.host.now();
        const rest = Math.min(this.#lastUpdateAt + quietMs, started + longestMs) - now;
        if (rest <= 0) resolve();
        else setTimeout(look, rest);
      };
      setTimeout(look, quietMs);
    });
  }

  /** A cold session: turns that never ended are closed, once. */
  repair(): void {
    for (const [turnId, { started }] of this.state.openTurns) {
      const code = started ? 'PROMPT_OUTCOME_UNKNOWN' : 'PROMPT_NOT_SENT';
      const payload = stringifyWire({ outcome: 'interrupted', code, message: 'the sidecar was stopped in this turn' });
      this.record({ type: 'turn_ended', required: true, turnId, payload, synthetic: true });
    }
    for (const [approvalId, { state, toolCallId }] of this.state.approvals) {
      if (state !== 'pending') continue;
      const payload = stringifyWire({ approvalId, reason: 'the sidecar was stopped' });
      this.record({ type: 'approval_interrupted', required: true, toolCallId, payload, synthetic: true });
    }
  }

  close(): void {
    this.order.close();
    this.turns.close();
    this.approvals.close();
  }

  #textUpdate(
    incoming: IncomingUpdate,
    text: { kind: number; key: string; bodyStart: number; bodyEnd: number },
  ): AcceptedText | undefined {
    const { wire, meta, childSessionId, paramsRest, envelopeRest } = incoming;
    const { kind, bodyStart, bodyEnd } = text;
    const body = wire.slice(bodyStart, bodyEnd);
    if (kind === UPDATE_KINDS.user_message_chunk && this.turns.isEcho(incoming.value)) return undefined;
    const key = `${text.key} ${childSessionId ?? ''} ${meta ?? ''} ${paramsRest ?? ''} ${envelopeRest ?? ''}`;
    const open = this.order.openRun;
    if (body === '') {
      // Nothing to join to: it begins a message of its own and is kept as it is.
      if (open?.shape.key !== key) this.recordUpdate(incoming, kind);
      return undefined;
    }
    const prefix = wire.slice(0, bodyStart);
    const suffix = wire.slice(bodyEnd);
    const last = this.#lastShape;
    const same = last && last.key === key && last.prefix === prefix && last.suffix === suffix;
    const child = childSessionId === undefined ? undefined : encodeWire(childSessionId);
    const shape = same ? last : { kind, key, prefix, suffix, meta, childSessionId: child, paramsRest, envelopeRest };
    this.#lastShape = shape;
    this.order.text(shape, body, this.turns.current?.turnId);
    return kind === UPDATE_KINDS.user_message_chunk || !same ? undefined : { shape, bodyStart, bodyEnd };
  }

  #progressUpdate(incoming: IncomingUpdate, toolCallId: string, fields: ReadonlyMap<string, string>): void {
    if (fields.size === 0) return;
    const turnId = this.turns.current?.turnId;
    const first = this.progress.merge(toolCallId, fields, turnId, incoming.childSessionId);
    if (first) {
      for (const attachment of this.clients.values()) {
        if (attachment.behind) attachment.seenPatches.delete(toolCallId);
        else attachment.seenPatches.add(toolCallId);
      }
    }
    this.passing(incoming, UPDATE_KINDS.tool_call_update, toolCallId);
  }

  #toolUpdate(incoming: IncomingUpdate, kind: number, toolCallId: string, fields: ReadonlyMap<string, string>): void {
    const patch = this.progress.takeBefore(toolCallId, fields);
    if (patch) this.#recordPatch(patch);
    for (const attachment of this.clients.values()) attachment.seenPatches.delete(toolCallId);
    this.recordUpdate(incoming, kind, toolCallId);
  }

  #recordPatch(patch: PendingPatch): void {
    const { toolCallId, turnId, childSessionId } = patch;
    const seen = new Set<Attachment>();
    for (const attachment of this.clients.values()) if (attachment.seenPatches.delete(toolCallId)) seen.add(attachment);
    const event = { type: 'update' as const, payload: patchUpdate(patch), turnId, toolCallId, childSessionId };
    const settled = (seq: number): void => {
      for (const [old, set] of this.#skips)
        if ([...set].every((entry) => entry.position.seq >= old)) this.#skips.delete(old);
      if (seen.size > 0) this.#skips.set(seq, seen);
    };
    this.record(event, { kind: UPDATE_KINDS.tool_call_update, settled });
  }
}
