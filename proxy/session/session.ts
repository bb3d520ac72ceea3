/**
 * A session: ties the log's order, the agent's updates and the clients together.
 *
 *   agent update -> update(): classify -> order (append | run | note) -> commit -> published -> clients' pumps
 *   client       -> turns / approvals / client requests -> order -> commit -> forwarded to the agent
 */
import { type RpcError, rpcError } from '../../protocol/error.ts';
import type { EventFields } from '../../protocol/event.ts';
import { type Position, chunkId, settledId } from '../../protocol/event-id.ts';
import { type JsonObject, notificationText } from '../../protocol/json-rpc.ts';
import { type SessionState, applyEvent } from '../../protocol/v1/session-state.ts';
import { UPDATE_KINDS } from '../../protocol/v1/update-kinds.ts';
import { encodeWire, stringifyWire } from '../../protocol/wire-text.ts';
import type { EventLog, SessionRow } from '../../storage/event-log.ts';
import { isSessionId } from '../../storage/log-keys.ts';
import type { HistoryCache } from '../../storage/history-cache.ts';
import { closerEvents, REPAIR_REASON, repairEvents } from '../../storage/repair.ts';
import type { Config } from '../config.ts';
import type { Logger } from '../log.ts';
import { Approvals } from './approvals.ts';
import type { BoundOutcome } from './agent-port.ts';
import { type AttachOptions, Attachment, type View } from './attachment.ts';
import type { Client } from './client.ts';
import type { EventWatch } from './event-watch.ts';
import { type IncomingUpdate, Intake } from './intake.ts';
import { ClientRequests } from './client-requests.ts';
import { type AppendOptions, Order } from './order.ts';
import { Presence } from './presence.ts';
import type { PumpSource } from './pump.ts';
import { type Envelope, envelopeOf } from './render.ts';

import { Turns } from './turns.ts';

/** Children that a session's row names, the latest. */
const MAX_ROW_CHILDREN = 1000;

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
  /** Bytes of all sessions that no commit holds yet; each order keeps its part in it. */
  readonly backlog: { bytes: number };
  /** The session has something to commit or to show; coalesced. */
  touched(session: Session): void;
  /** Makes sure the session lives in the agent. */
  bind(session: Session): Promise<BoundOutcome> | BoundOutcome;
  /** The store can take no more, or again. */
  stalled(session: Session, message: string | undefined): void;
  /** Counts and logs what is recorded. */
  readonly watch: EventWatch;
  damaged(session: Session, error: RpcError): void;
  /** The session leaves memory: nothing may lead to this object any more. */
  asleep(session: Session): void;
}

/** From where on a child is replayed. */
interface ChildStart {
  readonly mode: 'tail' | 'full' | 'none';
  readonly position: Position;
}

/** Decides which updates are the agent's replay of what the log has (`agent/swallow.ts`). */
export interface ReplayFilter {
  /** True while text must not take the fast path past `admits`. */
  readonly holds: boolean;
  /** False: the update is kept back, and comes again through the intake if it turns out to be new. */
  admits(incoming: IncomingUpdate): boolean;
  /** What came before the prompt is no answer to it. */
  promptSent(): void;
  /** A turn has ended: what is held and not proven to be a replay is let go. */
  settle(): void;
  end(): void;
}

interface AgentExitFacts {
  readonly code: number | null;
  readonly signal: string | null;
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
  readonly presence: Presence;
  readonly clients = new Map<Client, Attachment>();
  readonly logger: Logger;
  /** The agent session that it lives in now; undefined until it is bound in this agent life. */
  agentSessionId: string | undefined;
  /** Set while the agent may be replaying what the log has: keeps that back. */
  replay: ReplayFilter | undefined;
  /** Earlier conversation that goes to the agent before the next prompt. */
  primer: string | undefined;
  /** What could not be set again when the session was bound the last time. */
  notApplied: readonly string[] = [];
  /** It is being deleted: nobody can name it any more. */
  deleting = false;
  /** It was told something while it did not live in the agent that said it. */
  heardLate = false;
  /** Requests to the agent whose answer changes this session. */
  holds = 0;
  /** `mcpServers` that the live agent session was made or restored with, wire text. */
  boundServers: string | undefined;
  /** A bind that is under way. */
  binding: Promise<BoundOutcome> | undefined;
  /** The log cannot be read: every use is refused with this. */
  damage: RpcError | undefined;
  lastActive = 0;
  #row: SessionRow;
  /** What waits until the repair of a cold log is in the log; undefined when there is nothing to wait for. */
  #repairing: (() => void)[] | undefined;

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
      backlog: host.backlog,
      touched: () => host.touched(this),
      stalled: (message) => {
        host.stalled(this, message);
        if (message !== undefined) this.approvals.stalled();
        this.#repaired();
      },
      movedUp: (seq) => this.#movedUp(seq),
    });
    this.intake = new Intake(this);
    this.turns = new Turns(this);
    this.approvals = new Approvals(this);
    this.clientRequests = new ClientRequests(this);
    this.presence = new Presence(this);
  }

  /** There is no room for anything new: what runs may end, nothing begins. */
  get full(): boolean {
    return this.order.stalled || this.host.log.lowOnSpace;
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

  /** The row is not to be written yet. */
  dropRow(): void {
    this.order.dropRow();
  }

  /** The cursor of a position. */
  eventId(at: Position): string {
    const { logId } = this.envelope;
    return at.offset === 0 ? settledId(logId, at.seq) : chunkId(logId, at.seq + 1, this.boot, at.offset);
  }

  /** Appends an event and folds it into the state. Ids are ordinary strings, the rest is wire text. */
  record(event: Omit<EventFields, 'time'>, options: AppendOptions = {}, value?: JsonObject): void {
    // Nothing is written to a deleted session: its events are being taken away.
    if (this.order.ended) return;
    const { kind = 0 } = options;
    const { type, turnId, toolCallId, childSessionId, payload, synthetic } = event;
    this.order.append(
      {
        type,
        time: this.host.now(),
        payload,
        required: event.required,
        synthetic,
        turnId,
        toolCallId: toolCallId === undefined ? undefined : encodeWire(toolCallId),
        meta: event.meta,
        childSessionId: childSessionId === undefined ? undefined : encodeWire(childSessionId),
        paramsRest: event.paramsRest,
        envelopeRest: event.envelopeRest,
      },
      type === 'update' ? options : this.host.watch.watched(this, event, options),
    );
    const children = this.state.children.size;
    applyEvent(this.state, {
      seq: this.order.lastSeq,
      type,
      kind,
      turnId,
      toolCallId,
      childSessionId,
      synthetic,
      payload: () => payload,
      value,
    });
    if (this.state.children.size > children) this.#announced([...this.state.children].slice(children));
    if (type === 'turn_started' || type === 'turn_ended') this.presence.changed();
    if (kind === UPDATE_KINDS.session_info_update && this.state.title !== this.#row.title) {
      this.setRow({ title: this.state.title ?? null });
    }
  }

  /** Whoever asks for a child has to be led here, also when the log is cold. */
  #announced(children: readonly string[]): void {
    const known = [...(this.#row.children ?? []), ...children.filter(isSessionId)];
    this.setRow({ children: known.slice(-MAX_ROW_CHILDREN) });
  }

  recordUpdate(
    incoming: Omit<IncomingUpdate, 'value'> & { readonly value?: JsonObject },
    kind: number,
    toolCallId?: string,
    synthetic = false,
  ): void {
    const { wire, value, meta, childSessionId, paramsRest, envelopeRest } = incoming;
    const turnId = this.turns.current?.turnId;
    const event = { type: 'update' as const, payload: wire, turnId, toolCallId, synthetic };
    this.record({ ...event, meta, childSessionId, paramsRest, envelopeRest }, { kind }, value);
  }

  /** Shows a notification that is not an update, at its place in the order. */
  notifyClients(wire: string, sidecarOnly = false): void {
    this.order.note((at) => {
      for (const [client, attachment] of this.clients) {
        if (attachment.behind || (sidecarOnly && !attachment.view.sidecar)) continue;
        attachment.owe({ ...at, what: 'passing', wire });
        client.kick();
      }
    });
  }

  skips(seq: number, attachment: Attachment): boolean {
    return this.intake.skips(seq, attachment);
  }

  /** Whether the client of this view shows a terminal itself. */
  ownsTerminal(view: View, terminalId: string): boolean {
    return this.clientRequests.terminals.isShownBy(view, terminalId);
  }

  damaged(seq: number, detail: string): void {
    this.host.damaged(this, rpcError('log_damaged', `event ${seq}: ${detail}`, { sessionId: this.sessionId, seq }));
  }

  /**
   * Puts a client on the session at a position, or moves it there when it is on it already. The caller owes it the
   * response and calls `attached`.
   */
  attach(client: Client, position: Position, options: AttachOptions = {}): Attachment {
    this.lastActive = this.host.now();
    const known = this.clients.get(client);
    if (known) {
      this.approvals.clientMoved(client);
      this.#forgetView(known);
      known.restart(position);
    }
    const attachment = known ?? new Attachment(position, client);
    attachment.begin(this.order.tip, options);
    this.clients.set(client, attachment);
    return attachment;
  }

  /** A client's response is owed: now what waits for it. */
  attached(client: Client): void {
    this.clientRequests.clientAttached(client);
    this.approvals.clientAttached(client);
    this.presence.attached();
  }

  /** The same for the events of one child, wire text; the view of everything else goes on where it is. */
  attachForChild(client: Client, child: string, start: ChildStart): Attachment {
    this.lastActive = this.host.now();
    const known = this.clients.get(client);
    if (known) this.approvals.clientMoved(client);
    const attachment = known ?? new Attachment(this.order.tip, client);
    attachment.attachedAt = this.order.tip;
    this.clients.set(client, attachment);
    attachment.children.add(child);
    if (start.mode === 'none') return attachment;
    this.intake.forget(attachment, child);
    attachment.replayChild(child, start.position, start.mode === 'full');
    return attachment;
  }

  detach(client: Client): void {
    const attachment = this.clients.get(client);
    if (!attachment) return;
    this.clients.delete(client);
    for (const answer of attachment.takeAnswers(this.damage)) client.send(answer);
    client.kick();
    this.#forgetView(attachment);
    this.approvals.clientLeft(client);
    this.clientRequests.clientLeft(client);
    this.presence.left(client);
  }

  /** What this attachment was shown live is no longer on a screen. */
  #forgetView(attachment: Attachment): void {
    this.intake.forget(attachment);
    this.clientRequests.terminals.forget(attachment);
  }

  /** The agent process is gone. */
  agentExited(message: string, exit?: AgentExitFacts): void {
    const lived = this.agentSessionId !== undefined || this.binding !== undefined;
    this.agentSessionId = undefined;
    this.replay?.end();
    this.replay = undefined;
    this.primer = undefined;
    if (!lived && !this.turns.busy && !this.heardLate) return;
    this.heardLate = false;
    this.closeRunning(message);
    if (!lived && !this.turns.busy) return;
    this.clientRequests.agentExited();
    this.turns.agentExited(message);
    this.tellAgentState('exited', { exitCode: exit?.code, signal: exit?.signal ?? undefined, message });
  }

  /** What ran in the agent ends with it: its tool calls, subagents and approvals, written before the turn's own end. */
  closeRunning(why: string): void {
    this.intake.flush();
    this.order.closeRun();
    this.approvals.agentExited();
    const turnId = this.turns.current?.turnId;
    const closers = closerEvents(this.state, (id) => id !== undefined && id === turnId, why);
    for (const { kind, ...event } of closers) this.record(event, { kind });
  }

  /** `_sidecar/agent` to the clients that opted in. */
  tellAgentState(state: 'starting' | 'exited' | 'failed', facts: Readonly<Record<string, unknown>> = {}): void {
    const params = stringifyWire({ sessionId: this.sessionId, state, ...facts });
    this.notifyClients(notificationText('_sidecar/agent', params), true);
  }

  /** An event that was given up on a full disk: what has been folded behind it is one seq lower. */
  #movedUp(seq: number): void {
    for (const prompt of this.state.prompts.values()) {
      if (prompt.ended !== undefined && prompt.ended > seq) prompt.ended--;
    }
    for (const attachment of this.clients.values()) if (attachment.asksFrom > seq) attachment.asksFrom--;
  }

  /** A cold session: what the end of its log asks for is appended, once. */
  repair(): void {
    const events = repairEvents(this.state, REPAIR_REASON);
    if (events.length === 0) return;
    this.#repairing = [];
    for (const { kind, ...event } of events) this.record(event, { kind });
    this.order.note(() => this.#repaired());
  }

  /** Runs at once, or when the repair is in the log and so in what is replayed. A full disk is not waited for. */
  whenRepaired(run: () => void): void {
    if (this.#repairing) this.#repairing.push(run);
    else run();
  }

  #repaired(): void {
    const waiting = this.#repairing;
    this.#repairing = undefined;
    for (const run of waiting ?? []) run();
  }

  close(): void {
    this.order.close();
    this.turns.close();
    this.approvals.close();
    this.clientRequests.close();
    this.replay?.end();
    this.replay = undefined;
  }
}
