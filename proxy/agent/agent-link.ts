/**
 * The link to one agent process: bytes of its stdout in, messages out to the house; requests to it get ids of our own.
 *
 *   stdout chunk -> valid UTF-8 -> lines -> template of a text chunk?  -> session.text   (nothing parsed)
 *                                        -> else parseMessage          -> update | request | notification | response
 */
import '../../storage/latin1.ts';
import { isUtf8 } from 'node:buffer';
import { rpcError } from '../../protocol/error.ts';
import {
  type InvalidMessage,
  type NotificationMessage,
  type RequestMessage,
  type ResponseMessage,
  errorText,
  isObject,
  paramsOf,
  parseMessage,
  requestText,
  notificationText,
} from '../../protocol/json-rpc.ts';
import { LineReader, type LineSink } from '../../protocol/line-reader.ts';
import { type TextTemplate, compileTemplate, matchText } from '../../protocol/v1/text-template.ts';
import { type Member, member, members, stringifyWire } from '../../protocol/wire-text.ts';
import type { Logger } from '../log.ts';
import type { MessageDrop } from '../metrics.ts';
import type { AgentAnswer, AgentPort } from '../session/agent-port.ts';
import type { AcceptedText, IncomingUpdate } from '../session/intake.ts';
import type { Session } from '../session/session.ts';
import type { TextShape } from '../session/run.ts';

/** What the house does with the agent's messages. */
export interface AgentHandler {
  /** A `session/update` for the agent's session id; the fast path follows what comes back. */
  update(agentSessionId: string, update: IncomingUpdate): { session: Session; text: AcceptedText } | undefined;
  request(message: RequestMessage): void;
  notification(message: NotificationMessage): void;
  /** A line over the limit was dropped. */
  oversized(head: string, bytes: number): void;
  /** A read has been handled: what it touched can be committed and sent. */
  readDone(): void;
}

type TextOwner = { readonly session: Session; readonly shape: TextShape };

/** Text that is handed on at once: a run is cut only between such pieces. */
const JOINED_BYTES = 16 * 1024;
/** Templates kept: sessions or kinds that stream at the same time. */
const MAX_TEMPLATES = 4;
/** An unfinished character at the end of a read is at most this long. */
const MAX_PARTIAL_CHARACTER = 3;

export class AgentLink implements AgentPort, LineSink {
  readonly #write: (text: string) => boolean;
  readonly #handler: AgentHandler;
  readonly #logger: Logger;
  readonly #restart: (why: string) => void;
  readonly #dropped: (cause: MessageDrop) => void;
  readonly #reader: LineReader;
  readonly #pending = new Map<string, { method: string; answered: (answer: AgentAnswer) => void }>();
  #templates: TextTemplate<TextOwner>[] = [];
  #carry: Buffer | undefined;
  #nextId = 1;
  #closed: string | undefined;

  constructor(options: {
    readonly write: (text: string) => boolean;
    readonly handler: AgentHandler;
    readonly logger: Logger;
    readonly maxMessageBytes: number;
    readonly restart: (why: string) => void;
    readonly dropped: (cause: MessageDrop) => void;
  }) {
    this.#write = options.write;
    this.#handler = options.handler;
    this.#logger = options.logger;
    this.#restart = options.restart;
    this.#dropped = options.dropped;
    this.#reader = new LineReader(options.maxMessageBytes, this);
  }

  /** Requests that the agent has not answered. */
  get pending(): number {
    return this.#pending.size;
  }

  request(method: string, params: string, answered: (answer: AgentAnswer) => void): string {
    const id = String(this.#nextId++);
    if (this.#closed !== undefined) {
      const message = this.#closed;
      queueMicrotask(() => answered({ outcome: 'lost', message }));
      return id;
    }
    this.#pending.set(id, { method, answered });
    this.#send(requestText(id, method, params));
    return id;
  }

  notify(method: string, params: string): void {
    this.#send(notificationText(method, params));
  }

  respond(wire: string): void {
    this.#send(wire);
  }

  restart(why: string): void {
    this.#restart(why);
  }

  /** A session is no longer this agent's: its templates go. */
  dropTemplates(): void {
    this.#templates = [];
  }

  /** A piece of stdout. */
  data(chunk: Buffer): void {
    this.#reader.push(this.#validText(chunk));
    this.#handler.readDone();
  }

  /** Stdout is at its end and the process is gone: whatever is pending is lost. */
  close(message: string): void {
    if (this.#carry) this.#reader.push(this.#carry.toString('utf8'));
    this.#carry = undefined;
    this.#reader.end();
    this.#closed = message;
    this.#templates = [];
    const pending = [...this.#pending.values()];
    this.#pending.clear();
    for (const { answered } of pending) answered({ outcome: 'lost', message });
    this.#handler.readDone();
  }

  match(text: string, at: number): number {
    const templates = this.#templates;
    for (let i = 0; i < templates.length; i++) {
      const template = templates[i] as TextTemplate<TextOwner>;
      const matched = matchText(template, text, at, JOINED_BYTES);
      if (!matched) continue;
      const { session, shape } = template.owner;
      if (!session.intake.text(shape, matched.body)) return -1;
      if (i > 0) this.#templates = [template, ...templates.filter((other) => other !== template)];
      return matched.next;
    }
    return -1;
  }

  line(wire: string): void {
    const message = parseMessage(wire);
    switch (message.kind) {
      case 'invalid':
        this.#dropped('agent_not_json_rpc');
        this.#logger.warn({ bytes: wire.length, reason: whyNot(message) }, 'agent stdout: not a JSON-RPC message');
        return;
      case 'response':
        this.#response(message);
        return;
      case 'request':
        this.#handler.request(message);
        return;
      case 'notification':
        if (message.method === 'session/update') this.#update(message);
        else this.#handler.notification(message);
        return;
      default:
    }
  }

  oversized(head: string, bytes: number): void {
    const list = members(head);
    const idMember = member(list, 'id');
    const id = idMember && head.slice(idMember.valueStart, idMember.valueEnd);
    const method = member(list, 'method');
    this.#dropped('agent_too_large');
    this.#logger.warn({ bytes }, 'agent stdout: a line over --max-message-bytes was dropped');
    const error = stringifyWire(rpcError('message_too_large', `${bytes} bytes from the agent`));
    if (id !== undefined && method) this.respond(errorText(id, error));
    else if (id !== undefined) {
      const response = parseMessage(errorText(id, error));
      if (response.kind === 'response') this.#response(response);
    } else this.#handler.oversized(head, bytes);
  }

  /** One line each: a client may have laid out its JSON over several. */
  #send(wire: string): void {
    if (this.#closed === undefined) this.#write(`${/[\r\n]/.test(wire) ? wire.replace(/[\r\n]+/g, ' ') : wire}\n`);
  }

  #response(message: ResponseMessage): void {
    const pending = this.#pending.get(message.id);
    if (!pending) {
      this.#dropped('agent_unknown_response');
      this.#logger.warn({ id: message.id.slice(0, 40) }, 'agent stdout: a response to no request of ours');
      return;
    }
    this.#pending.delete(message.id);
    pending.answered({ outcome: 'answered', message });
  }

  #update(message: NotificationMessage): void {
    const params = paramsOf(message);
    const { sessionId, update } = params;
    if (typeof sessionId !== 'string' || !isObject(update) || !message.params) {
      this.#logger.warn({ bytes: message.wire.length }, 'agent stdout: a session/update without sessionId or update');
      return;
    }
    const { wire } = message;
    const list = members(wire, message.params.valueStart);
    const found = member(list, 'update') as Member;
    const incoming: IncomingUpdate = {
      wire: wire.slice(found.valueStart, found.valueEnd),
      value: update,
      meta: isObject(params['_meta']) ? valueText(wire, member(list, '_meta')) : undefined,
      paramsRest: restOf(wire, list, ['sessionId', 'update', '_meta']),
      envelopeRest: restOf(wire, message.members, ['jsonrpc', 'method', 'params']),
    };
    const accepted = this.#handler.update(sessionId, incoming);
    if (!accepted) return;
    const { session, text } = accepted;
    const offset = found.valueStart;
    const template = compileTemplate(wire, offset + text.bodyStart, offset + text.bodyEnd, {
      session,
      shape: text.shape,
    });
    if (template) this.#templates = [template, ...this.#templates].slice(0, MAX_TEMPLATES);
  }

  /** The chunk as wire text that is valid UTF-8; a character cut at its end is kept for the next one. */
  #validText(chunk: Buffer): string {
    let bytes = chunk;
    if (this.#carry) {
      bytes = Buffer.concat([this.#carry, chunk]);
      this.#carry = undefined;
    }
    const partial = partialCharacter(bytes);
    if (partial > 0) {
      this.#carry = Buffer.from(bytes.subarray(bytes.length - partial));
      bytes = bytes.subarray(0, bytes.length - partial);
    }
    if (isUtf8(bytes)) return bytes.latin1Slice();
    this.#logger.warn({ bytes: bytes.length }, 'agent stdout: invalid UTF-8 was replaced');
    return Buffer.from(bytes.toString('utf8')).latin1Slice();
  }
}

/** What JSON.parse says quotes the text, which the log must not hold. */
function whyNot({ code, reason }: InvalidMessage): string {
  return code === -32700 ? 'not JSON' : reason;
}

function valueText(wire: string, found: Member | undefined): string | undefined {
  const text = found && wire.slice(found.valueStart, found.valueEnd);
  return text === undefined || members(text).length === 0 ? undefined : text;
}

/** The members that are not among the known ones, wire text without braces; undefined when there are none. */
function restOf(wire: string, list: readonly Member[], known: readonly string[]): string | undefined {
  let rest: string | undefined;
  for (const entry of list) {
    if (known.includes(entry.key)) continue;
    const text = wire.slice(entry.keyStart, entry.valueEnd);
    rest = rest === undefined ? text : `${rest},${text}`;
  }
  return rest;
}

/** Bytes at the end that begin a character whose rest is not there yet. */
function partialCharacter(bytes: Buffer): number {
  for (let back = 1; back <= Math.min(MAX_PARTIAL_CHARACTER, bytes.length); back++) {
    const byte = bytes[bytes.length - back] as number;
    if (byte < 0x80) return 0;
    if (byte < 0xc0) continue;
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    return length > back ? back : 0;
  }
  return 0;
}
