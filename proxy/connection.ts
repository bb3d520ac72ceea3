/**
 * One client connection: JSON-RPC in, what its sessions owe it out.
 *
 *   transport --receive(wire)--> parse -> response? -> whoever asked
 *                                      -> request / notification -> client-methods
 *   sessions  --kick()--> pump each attachment in turns of 64 KiB -> outbox -> one write
 */
import { type ErrorKind, rpcError } from '../protocol/error.ts';
import {
  type NotificationMessage,
  type RequestMessage,
  type ResponseMessage,
  errorText,
  parseMessage,
} from '../protocol/json-rpc.ts';
import { member, members, stringifyWire } from '../protocol/wire-text.ts';
import { MAX_OWED, boundHit } from './bounds.ts';
import type { House } from './house.ts';
import type { AnswerHandler, Client } from './session/client.ts';
import type { Attachment } from './session/attachment.ts';
import { type Pumped, pump } from './session/pump.ts';
import type { Session } from './session/session.ts';
import type { TracedPeer } from './trace/trace.ts';
import type { Outbox } from './transport/outbox.ts';
import { receiveNotification, receiveRequest } from './client-methods/dispatch.ts';

export interface Transport {
  readonly outbox: Outbox;
  /** Ends the connection with a WebSocket close code; other transports just close. */
  close(code: number, reason: string): void;
  /** Stops or goes on reading from the peer. */
  read(on: boolean): void;
}

/** What the transport knows of a peer: from its token, else a controller without a name. */
export interface Identity {
  readonly role: 'controller' | 'observer';
  readonly name?: string | undefined;
  readonly tokenId?: string | undefined;
  /** The only sessions that its token opens. */
  readonly sessions?: ReadonlySet<string> | undefined;
}

/** An attachment's turn. */
const TURN_BYTES = 64 * 1024;

let nextConnection = 1;
let activity = 0;

export class Connection implements Client {
  readonly id = nextConnection++;
  readonly house: House;
  readonly transport: Transport;
  role: 'controller' | 'observer';
  clientId: string | undefined;
  /** The clientId bound to the client's token. */
  identity: string | undefined;
  name: string | undefined;
  /** The name is the token's. */
  readonly named: boolean;
  capabilities: unknown = {};
  sidecar = false;
  hidden: ReadonlySet<number> = new Set();
  children = false;
  booleanOptions = false;
  initialized = false;
  open = true;
  lastActive = 0;
  /** Requests to the agent that this client waits for: the agent's id by the client's id. */
  readonly forwarded = new Map<string, string>();
  /** Requests that wait for the agent to be ready or the session to be bound. */
  asking = 0;
  readonly sessions = new Map<Session, Attachment>();
  /** Ids of sessions on which this controller only looks on. */
  readonly observing = new Set<string>();
  readonly tokenId: string | undefined;
  /** The only sessions that this client may name; undefined: all. */
  readonly onlySessions: ReadonlySet<string> | undefined;
  /** Why nothing is read from this client now. */
  readonly #holds = new Set<'outbox' | 'agent'>();
  /** Messages that had been read when it was held. */
  #inbox: string[] = [];
  readonly #traced: TracedPeer | undefined;
  readonly #expected = new Map<string, AnswerHandler>();
  readonly #watched = new Map<string, (wire: string) => void>();
  #nextRequest = 1;
  #kicked = false;
  #waiting = false;

  constructor(house: House, transport: Transport, identity: Identity) {
    this.house = house;
    this.transport = transport;
    this.role = identity.role;
    this.name = identity.name;
    this.named = identity.name !== undefined;
    this.tokenId = identity.tokenId;
    this.onlySessions = identity.sessions;
    house.connections.add(this);
    if (house.agentHost.inputHeld) this.hold('agent');
    house.metrics.connections.add();
    const { outbox } = transport;
    const traced = house.trace?.client(this.id, outbox.framing);
    this.#traced = traced;
    if (traced) outbox.tap = (page) => traced.sent(page);
  }

  /** A message of the client. @param wire one character a byte, valid UTF-8 */
  receive(wire: string): void {
    // What was on its way when the connection was closed reaches nobody: its sender has to ask again.
    if (!this.open) return;
    this.#traced?.received(wire);
    if (this.#holds.size > 0) {
      this.#inbox.push(wire);
      return;
    }
    this.#handle(wire);
    if (this.transport.outbox.queuedBytes > this.house.config.clientBufferBytes) this.hold('outbox');
    else if (this.#owed() > MAX_OWED) {
      boundHit('client_owed');
      this.hold('outbox');
    }
  }

  #owed(): number {
    let count = 0;
    for (const attachment of this.sessions.values()) count += attachment.owedCount;
    return count;
  }

  /** Reads nothing more from this client: it does not take its answers, or the agent does not take its input. */
  hold(why: 'outbox' | 'agent'): void {
    if (this.#holds.has(why) || !this.open) return;
    this.#holds.add(why);
    this.transport.read(false);
    if (why === 'outbox') boundHit('client_reading');
  }

  release(why: 'outbox' | 'agent'): void {
    if (!this.#holds.delete(why)) return;
    while (this.open && this.#holds.size === 0) {
      const wire = this.#inbox.shift();
      if (wire === undefined) {
        this.transport.read(true);
        return;
      }
      this.receive(wire);
    }
  }

  /** Its silence is not its fault. */
  get waitsForAgent(): boolean {
    return this.#holds.has('agent');
  }

  #handle(wire: string): void {
    this.lastActive = ++activity;
    const message = parseMessage(wire);
    switch (message.kind) {
      case 'invalid': {
        const kind: ErrorKind = message.code === -32700 ? 'parse_error' : 'invalid_request';
        this.send(errorText(message.id, stringifyWire(rpcError(kind, message.reason))));
        break;
      }
      case 'response':
        this.#answered(message);
        break;
      case 'request':
        this.#guard(message, () => receiveRequest(this, message));
        break;
      case 'notification':
        this.#guard(message, () => receiveNotification(this, message));
        break;
      default:
    }
    this.kick();
  }

  /** A message over the limit was dropped; its head tells whom to answer. */
  oversized(head: string, bytes: number): void {
    if (!this.open) return;
    this.house.metrics.messageDropped('client_too_large');
    this.#traced?.received(head);
    const list = members(head);
    const found = member(list, 'id');
    const id = found && member(list, 'method') ? head.slice(found.valueStart, found.valueEnd) : 'null';
    this.send(errorText(id, stringifyWire(rpcError('message_too_large', `${bytes} bytes`))));
    this.kick();
  }

  send(wire: string): void {
    if (this.#watched.size > 0) this.answerMade(wire);
    if (!this.open) return;
    const { outbox } = this.transport;
    const { clientBufferBytes, maxMessageBytes } = this.house.config;
    if (outbox.queuedBytes > clientBufferBytes + maxMessageBytes) {
      boundHit('client_lagging');
      this.house.logger.warn({ connection: this.id, clientId: this.clientId }, 'the client does not read; closed');
      this.transport.close(1013, 'too slow');
      this.closed();
      return;
    }
    outbox.send(wire);
  }

  /** Calls `made` with the answer to one of this client's requests, also when the client is gone by then. */
  watchAnswer(id: string, made: (wire: string) => void): void {
    this.#watched.set(id, made);
  }

  /** An answer that takes another way than `send`. */
  answerMade(wire: string): void {
    if (this.#watched.size === 0) return;
    const list = members(wire);
    const found = member(list, 'id');
    if (!found || member(list, 'method')) return;
    const id = wire.slice(found.valueStart, found.valueEnd);
    const made = this.#watched.get(id);
    this.#watched.delete(id);
    made?.(wire);
  }

  /** A newer connection of the same client takes its place. */
  replace(): void {
    this.transport.close(4409, 'replaced by a newer connection of the same client');
    this.closed();
  }

  fail(id: string, kind: ErrorKind, detail?: string, data?: Readonly<Record<string, unknown>>): void {
    this.send(errorText(id, stringifyWire(rpcError(kind, detail, data))));
  }

  expect(handler: AnswerHandler): string {
    const id = String(this.#nextRequest++);
    this.#expected.set(id, handler);
    return id;
  }

  forget(id: string): void {
    this.#expected.delete(id);
  }

  /** Pumps at the end of this tick, so that all that is pending goes out in one write. */
  kick(): void {
    if (this.#kicked || !this.open) return;
    this.#kicked = true;
    this.house.tick.kick(this);
  }

  /** The socket has drained. */
  drained(): void {
    this.#waiting = false;
    this.kick();
  }

  /** The transport is gone. */
  closed(): void {
    if (!this.open) return;
    this.open = false;
    this.#inbox = [];
    this.house.connections.delete(this);
    this.house.logger.info({ connection: this.id, clientId: this.clientId }, 'client gone');
    this.#traced?.ended();
    for (const session of this.sessions.keys()) session.detach(this);
    this.sessions.clear();
    const expected = [...this.#expected.values()];
    this.#expected.clear();
    for (const handler of expected) handler('gone');
  }

  attach(session: Session, attachment: Attachment): void {
    this.sessions.set(session, attachment);
  }

  detach(session: Session): void {
    session.detach(this);
    this.sessions.delete(session);
  }

  #answered(message: ResponseMessage): void {
    const handler = this.#expected.get(message.id);
    // A late answer changes nothing.
    if (!handler) return;
    this.#expected.delete(message.id);
    handler(message);
  }

  #guard(message: RequestMessage | NotificationMessage, run: () => void): void {
    try {
      run();
    } catch (error) {
      this.house.logger.error(
        { err: error, method: message.method.slice(0, 80), clientId: this.clientId },
        'request failed',
      );
      if (message.kind === 'request') this.fail(message.id, 'internal');
    }
  }

  /** Called by the tick. */
  pump(): void {
    this.#kicked = false;
    if (!this.open) return;
    const { outbox } = this.transport;
    let more = false;
    if (!this.#waiting) {
      // A copy: whoever had its turn moves to the end.
      for (const [session, attachment] of Array.from(this.sessions)) {
        const before = outbox.total;
        const pumped = this.#pumpOne(session, attachment);
        // It cannot be moved on: whoever waits for its replay is told, and answers to come need no position.
        if (pumped === 'damaged') this.detach(session);
        if (pumped !== 'turn' && pumped !== 'full') continue;
        more = true;
        if (outbox.total > before) {
          // When the outbox is full before all had their turn, the others are first the next time.
          this.sessions.delete(session);
          this.sessions.set(session, attachment);
        }
        if (pumped === 'full') break;
      }
    } else for (const attachment of this.sessions.values()) attachment.behind = true;
    outbox.flush();
    if (outbox.needsDrain) {
      if (!this.#waiting) boundHit('client_outbox');
      this.#waiting = true;
      return;
    }
    if (this.#holds.has('outbox') && this.#owed() < MAX_OWED / 2) this.release('outbox');
    if (more) setImmediate(this.#resume);
  }

  /** A log that surprises us is its session's trouble, not everybody's. */
  #pumpOne(session: Session, attachment: Attachment): Pumped {
    try {
      return pump(session, attachment, this.transport.outbox, TURN_BYTES, this.#resume);
    } catch (error) {
      this.house.logger.error({ err: error, sessionId: session.sessionId }, 'events could not be sent');
      session.damaged(attachment.position.seq + 1, String(error));
      return 'damaged';
    }
  }

  readonly #resume = (): void => this.kick();
}
