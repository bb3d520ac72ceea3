/**
 * A connection that survives drops, without sockets and clocks: messages, the time and the ends of transports come in,
 * messages and orders to the transport go out. One side is local (an editor, an SDK client) and never notices; the other
 * is a sidecar, reached by one transport after another.
 *
 *   local(wire) --> pending requests, backlog --> sink.remote      only while live
 *   sink.local <-- sessions' cursors, agent requests <-- remote(wire)
 *
 * On a new transport: initialize as before, `session/resume` of every open session after its cursor, then what was not
 * answered is sent again under the same keys, then what waited. The procedure of one session is in `session-resumer.ts`.
 */
import { type ErrorKind, rpcError } from '../../protocol/error.ts';
import {
  type NotificationMessage,
  type RequestMessage,
  type ResponseMessage,
  errorText,
  isObject,
  notificationText,
  paramsOf,
  parseMessage,
  requestText,
} from '../../protocol/json-rpc.ts';
import { stringifyWire, valueAt } from '../../protocol/wire-text.ts';
import { AgentRequests } from './agent-requests.ts';
import { optIn } from './opt-in.ts';
import { SessionFollower } from './session-follower.ts';
import { type Phase, type PhaseEvent, type PhaseTimes, firstPhase, isOpen, step, wakeAt } from './link-phase.ts';
import { type PendingRequest, PendingRequests, isStopping, paramsText } from './pending-requests.ts';
import { SessionBook, type TrackedSession } from './session-book.ts';
import { SessionResumer } from './session-resumer.ts';
import { withParams, withSidecarMembers } from '../../protocol/sidecar-meta.ts';

export interface LinkSink {
  /** A message for the local side. */
  local(wire: string): void;
  /** A message for the sidecar, on the present transport. */
  remote(wire: string): void;
  /** Opens a new transport. */
  open(): void;
  /** Ends the present transport at once. */
  cut(): void;
  /** Asks the present transport for a sign of life; false when it cannot. */
  ping(): boolean;
  state(state: LinkState): void;
}

export interface LinkState {
  readonly phase: Phase['name'];
  /** Failed attempts since the connection was last live. */
  readonly attempt: number;
  /** Why it is not live, a sentence without its full stop. */
  readonly reason?: string | undefined;
}

export interface LinkOptions {
  readonly times: PhaseTimes;
  /** Who we are, the same on every transport. */
  readonly clientId: string;
  /** Told to the other clients of a session. */
  readonly name?: string | undefined;
  readonly random: () => number;
  readonly newId: () => string;
}

/** Bytes of waiting messages from which the local side should not be read. */
const BACKLOG_BYTES = 16 * 1024 * 1024;
const PENDING_BYTES = 256 * 1024 * 1024;
/** After this time live, agent requests that were not asked again are over. */
const ORPHAN_MS = 5000;

type Own =
  | { readonly what: 'initialize' | 'ping' | 'child' }
  | { readonly what: 'resume'; readonly session: TrackedSession };

export class ResumableLink {
  readonly #options: LinkOptions;
  readonly #sink: LinkSink;
  readonly #pending = new PendingRequests();
  readonly #sessions = new SessionBook();
  readonly #agentRequests: AgentRequests;
  readonly #resumer: SessionResumer;
  readonly #follower: SessionFollower;
  readonly #own = new Map<string, Own>();
  readonly #ownPrefix: string;
  #nextOwn = 1;
  readonly #backlog: string[] = [];
  /** `session/cancel` of others' turns: what is sent after them must not be cancelled by them. */
  readonly #cancels: string[] = [];
  #backlogBytes = 0;
  #phase: Phase;
  /** Params of the local side's `initialize` with ours in it, once it was answered. */
  #initializeParams: string | undefined;
  #orphansAt: number | undefined;
  #endKind: ErrorKind = 'unreachable';
  #times: PhaseTimes;

  constructor(options: LinkOptions, sink: LinkSink, now: number) {
    this.#options = options;
    this.#sink = sink;
    this.#times = options.times;
    this.#ownPrefix = `"link-${options.newId()}-`;
    this.#agentRequests = new AgentRequests({
      local: (wire) => sink.local(wire),
      remote: (wire) => sink.remote(wire),
    });
    this.#resumer = new SessionResumer({
      ask: (session, method, params) => this.#ask(method, params, { what: 'resume', session }),
      askChild: (params) => this.#ask('session/resume', params, { what: 'child' }),
      show: (wire) => sink.local(wire),
      gone: (sessionId) => {
        this.#sessions.close(sessionId);
        this.#agentRequests.withdrawSession(sessionId);
      },
      replaced: (sessionId) => this.#follower.replaced(sessionId),
      newId: options.newId,
    });
    this.#follower = new SessionFollower({
      pending: this.#pending,
      sessions: this.#sessions,
      agentRequests: this.#agentRequests,
      resumer: this.#resumer,
      local: (wire) => sink.local(wire),
      newId: options.newId,
    });
    const first = firstPhase(now);
    this.#phase = first.phase;
  }

  /** Begins to connect. */
  start(): void {
    this.#sink.state({ phase: 'connecting', attempt: 0 });
    this.#sink.open();
  }

  get phase(): Phase {
    return this.#phase;
  }

  /** So much waits that the local side should not be read. */
  get congested(): boolean {
    const unsent = this.#phase.name === 'live' ? 0 : this.#pending.bytes;
    return this.#backlogBytes + unsent > BACKLOG_BYTES;
  }

  /** Requests of the local side that are not answered. */
  get unanswered(): number {
    return [...this.#pending.all].length;
  }

  /** When `tick` is due; undefined: not at all. */
  wakeAt(): number | undefined {
    const at = wakeAt(this.#times, this.#phase);
    const orphans = this.#orphansAt;
    return at === undefined || orphans === undefined ? at : Math.min(at, orphans);
  }

  opened(now: number): void {
    this.#step({ type: 'opened', now });
    for (const request of this.#pending.all) if (request.method === 'initialize') this.#send(request);
    if ([...this.#pending.all].some(({ method }) => method === 'initialize')) return;
    if (this.#initializeParams !== undefined) this.#ask('initialize', this.#initializeParams, { what: 'initialize' });
    else for (const request of this.#pending.all) this.#send(request);
  }

  lost(now: number, reason: string, code?: number): void {
    if (code === 4413 || code === 1009) this.#giveUpLargest();
    this.#step({ type: 'lost', now, random: this.#options.random(), reason }, reason);
  }

  refused(reason: string, error: ErrorKind = 'refused'): void {
    this.#endKind = error;
    this.#step({ type: 'refused', reason }, reason);
  }

  heard(now: number): void {
    this.#step({ type: 'heard', now });
  }

  tick(now: number): void {
    if (this.#orphansAt !== undefined && now >= this.#orphansAt) {
      this.#orphansAt = undefined;
      this.#agentRequests.withdrawOrphans();
    }
    this.#step({ type: 'tick', now, random: this.#options.random() }, 'the sidecar does not answer');
  }

  end(reason: string): void {
    this.#step({ type: 'end', reason }, reason);
  }

  /** A message of the local side. */
  local(wire: string, now: number): void {
    const message = parseMessage(wire);
    if (message.kind === 'invalid') {
      const kind: ErrorKind = message.code === -32700 ? 'parse_error' : 'invalid_request';
      this.#sink.local(errorText(message.id, stringifyWire(rpcError(kind, message.reason))));
    } else if (message.kind === 'response') {
      this.#agentRequests.answered(message, now);
    } else if (message.kind === 'notification') this.#localNotification(message);
    else this.#localRequest(message);
  }

  /** A message of the sidecar. */
  remote(wire: string, now: number): void {
    this.#step({ type: 'heard', now });
    const message = parseMessage(wire);
    switch (message.kind) {
      case 'invalid':
        return;
      case 'response':
        this.#remoteResponse(message, now);
        return;
      case 'request':
        this.#agentRequests.asked(message);
        return;
      case 'notification':
        this.#remoteNotification(message);
    }
  }

  #localRequest(message: RequestMessage): void {
    const { id } = message;
    if (this.#phase.name === 'ended') {
      this.#fail(id, this.#endKind, this.#phase.reason);
      return;
    }
    if (this.#pending.bytes + message.wire.length > PENDING_BYTES) {
      this.#fail(id, 'unreachable', 'too much is waiting for it');
      return;
    }
    let { wire } = message;
    if (message.method === 'initialize') {
      const opted = optIn(message, this.#options);
      wire = opted.wire;
      this.#follower.aware = opted.aware;
    }
    const request = this.#pending.add(message, this.#options.newId, wire);
    const early = this.#phase.name === 'greeting' && this.#initializeParams === undefined;
    if (this.#phase.name === 'live' || early) this.#send(request);
  }

  #localNotification(message: NotificationMessage): void {
    const { method, wire } = message;
    const ofSession = method === 'session/cancel';
    let waits = false;
    if (ofSession) {
      const { sessionId } = paramsOf(message);
      waits = this.#pending.cancel((request) => request.promptId !== undefined && request.sessionId === sessionId);
    } else if (method === '$/cancel_request') {
      const requestId = valueAt(wire, ['params', 'requestId']);
      waits = this.#pending.cancel(({ id }) => id === requestId);
    }
    if (this.#phase.name === 'live') this.#sink.remote(wire);
    else if (!waits && this.#phase.name !== 'ended') {
      (ofSession ? this.#cancels : this.#backlog).push(wire);
      this.#backlogBytes += wire.length;
    }
  }

  #remoteResponse(message: ResponseMessage, now: number): void {
    const own = this.#own.get(message.id);
    if (own) {
      this.#own.delete(message.id);
      if (own.what === 'initialize') this.#initialisedAgain(message, now);
      else if (own.what === 'resume') {
        this.#resumer.answered(own.session, message);
        this.#resumedAll(now);
      }
      return;
    }
    const kept = this.#pending.keptOn(message, this.#options.newId);
    if (kept) {
      if (!isStopping(message)) this.#send(kept);
      return;
    }
    const request = this.#pending.take(message.id);
    if (!request) return;
    this.#follower.answered(request, message);
    this.#sink.local(message.wire);
    if (request.method === 'initialize' && message.result) this.#initialised(request, now);
  }

  #remoteNotification(message: NotificationMessage): void {
    const { method } = message;
    if (method === 'session/update') this.#follower.update(message);
    else if (method === '$/cancel_request') {
      const requestId = valueAt(message.wire, ['params', 'requestId']);
      if (requestId !== undefined) {
        this.#agentRequests.withdrawnByRemote(requestId, this.#phase.name !== 'live');
      }
    } else if (method.startsWith('_sidecar/')) this.#follower.extension(message);
    else this.#sink.local(message.wire);
  }

  #initialised(request: PendingRequest, now: number): void {
    this.#initializeParams = paramsText(request);
    if (this.#phase.name === 'greeting') this.#resumeSessions(now);
  }

  #initialisedAgain(message: ResponseMessage, now: number): void {
    if (message.result) {
      this.#resumeSessions(now);
      return;
    }
    const error = message.value['error'];
    const text = isObject(error) ? String(error['message']) : 'initialize failed';
    this.#sink.cut();
    this.lost(now, text);
  }

  #resumeSessions(now: number): void {
    this.#step({ type: 'initialised' });
    for (const session of this.#sessions.all) {
      if (this.#pending.attachOf(session.sessionId) === undefined) this.#resumer.begin(session);
    }
    this.#resumedAll(now);
  }

  #resumedAll(now: number): void {
    if (this.#phase.name !== 'resuming') return;
    for (const session of this.#sessions.all) if (session.resuming !== 'no') return;
    this.#step({ type: 'resumed' });
    // Who was there once is waited for: a laptop may sleep for days.
    this.#times = { ...this.#times, giveUpMs: undefined };
    this.#orphansAt = this.#agentRequests.open > 0 ? now + ORPHAN_MS : undefined;
    for (const wire of this.#cancels.splice(0)) this.#sink.remote(wire);
    for (const request of this.#pending.all) this.#send(request);
    this.#backlogBytes = 0;
    for (const wire of this.#backlog.splice(0)) this.#sink.remote(wire);
  }

  #send(request: PendingRequest): void {
    if (request.sent) return;
    request.sent = true;
    const session = this.#sessions.get(request.sessionId);
    let { wire } = request;
    // A replay that was cut goes on where it was cut.
    if (request.again && request.replayBegan && session?.cursor !== undefined) {
      wire = withParams(wire, withSidecarMembers(valueAt(wire, ['params']) ?? '{}', { afterEventId: session.cursor }));
    }
    this.#sink.remote(wire);
    // By its id, also after a session/cancel: that would cancel what was sent later, too.
    if (request.cancelled) this.#sink.remote(notificationText('$/cancel_request', `{"requestId":${request.id}}`));
  }

  #ask(method: string, params: string, own: Own): void {
    const id = `${this.#ownPrefix}${this.#nextOwn++}"`;
    this.#own.set(id, own);
    this.#sink.remote(requestText(id, method, params));
  }

  #step(event: PhaseEvent, reason?: string): void {
    const before = this.#phase;
    const next = step(this.#times, before, event);
    this.#phase = next.phase;
    if (isOpen(before) && !isOpen(next.phase)) this.#dropped();
    for (const action of next.actions) {
      if (action === 'open') this.#sink.open();
      else if (action === 'cut') this.#sink.cut();
      else if (!this.#sink.ping()) this.#ask('_sidecar/ping', '{}', { what: 'ping' });
    }
    if (next.phase.name === 'ended' && before.name !== 'ended') this.#ended(next.phase.reason);
    if (next.phase.name !== before.name) {
      const attempt = 'attempt' in next.phase ? next.phase.attempt : 0;
      this.#sink.state({ phase: next.phase.name, attempt, reason });
    }
  }

  #dropped(): void {
    this.#own.clear();
    this.#orphansAt = undefined;
    this.#pending.lost();
    this.#agentRequests.lost();
    for (const session of this.#sessions.all) {
      session.resuming = 'no';
      session.skipping = false;
      session.replaying = false;
    }
  }

  #ended(reason: string): void {
    this.#backlog.length = 0;
    this.#cancels.length = 0;
    this.#backlogBytes = 0;
    for (const { id } of this.#pending.takeAll()) this.#fail(id, this.#endKind, reason);
  }

  #giveUpLargest(): void {
    const request = this.#pending.largest();
    if (request) this.#fail(this.#pending.take(request.id)?.id ?? 'null', 'message_too_large');
  }

  #fail(id: string, kind: ErrorKind, detail?: string): void {
    this.#sink.local(errorText(id, stringifyWire(rpcError(kind, detail))));
  }
}
