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
import { type SessionState, applyEvent } from '../../protocol/v1/session-state.ts';
import { UPDATE_KINDS } from '../../protocol/v1/update-kinds.ts';
import { encodeWire, stringifyWire } from '../../protocol/wire-text.ts';
import type { EventLog, SessionRow } from '../../storage/event-log.ts';
import type { HistoryCache } from '../../storage/history-cache.ts';
import type { Config } from '../config.ts';
import type { Logger } from '../log.ts';
import { Approvals } from './approvals.ts';
import type { BoundOutcome } from './agent-port.ts';
import { Attachment } from './attachment.ts';
import type { Client } from './client.ts';
import { type IncomingUpdate, Intake } from './intake.ts';
import { ClientRequests } from './client-requests.ts';
import { type AppendOptions, Order } from './order.ts';
import type { PumpSource } from './pump.ts';
import { type Envelope, envelopeOf } from './render.ts';

import { Turns } from './turns.ts';

/** What a session needs from the house. */
export interface SessionHost {
  readonly log: EventLog;
  readonly history: HistoryCache;
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

export class Session implements PumpSource {
  readonly host: SessionHost;
  readonly order: Order;
  readonly state: SessionState;
  readonly envelope: Envelope;
  readonly intake: Intake;
  readonly turns: Turns;
  readonly approvals: Approvals;
  readonly clientRequests: ClientRequests;
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
    this.intake = new Intake(this);
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
      synthetic: event.synthetic,
      payload: () => payload,
      value,
    });
    if (kind === UPDATE_KINDS.session_info_update && this.state.title !== this.#row.title) {
      this.setRow({ title: this.state.title ?? null });
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

  skips(seq: number, attachment: Attachment): boolean {
    return this.intake.skips(seq, attachment);
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
      this.intake.forget(known);
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
    this.intake.forget(attachment);
    this.approvals.clientLeft(client);
    this.clientRequests.clientLeft(client);
  }

  /** The agent process is gone. */
  agentExited(message: string): void {
    this.agentSessionId = undefined;
    this.swallowing = false;
    this.intake.flush();
    this.order.closeRun();
    this.approvals.agentExited();
    this.clientRequests.agentExited();
    this.turns.agentExited(message);
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
}
