/**
 * Requests that a client repeats after a lost connection, known by `params._meta.sidecar.requestKey` and the clientId: the
 * first one runs, the others join it or are answered from memory. Prompts have their promptId, and loading a session
 * again is harmless.
 */
import {
  type RequestMessage,
  type ResponseMessage,
  isObject,
  paramsOf,
  parseMessage,
  withId,
} from '../../protocol/json-rpc.ts';
import { parseEventId } from '../../protocol/event-id.ts';
import { sidecarOf } from '../../protocol/sidecar-meta.ts';
import { REQUEST_MEMORY_BYTES, boundHit } from '../bounds.ts';
import type { Connection } from '../connection.ts';
import { attachAt } from './session-of.ts';

const MAKES_A_SESSION = new Set(['session/new', 'session/fork']);

interface Asker {
  readonly connection: Connection;
  readonly id: string;
}
interface Remembered {
  readonly method: string;
  readonly at: number;
  asker: Asker;
  answer: ResponseMessage | undefined;
}

const KEPT_MS = 10 * 60_000;
const MAX_KEPT = 10_000;
const MAX_KEY = 256;

const NOT_KEPT = new Set(['initialize', 'session/load', 'session/resume', 'session/attach', 'session/prompt']);

export class RequestMemory {
  readonly #kept = new Map<string, Remembered>();
  readonly #now: () => number;
  /** Of the answers. */
  #bytes = 0;

  constructor(now: () => number) {
    this.#now = now;
  }

  /** True: it was seen before and is dealt with. */
  repeated(connection: Connection, message: RequestMessage): boolean {
    const key = keyOf(connection, message);
    if (key === undefined) return false;
    this.#expire();
    const known = this.#kept.get(key);
    const asker = { connection, id: message.id };
    if (!known) {
      const fresh: Remembered = { method: message.method, at: this.#now(), asker, answer: undefined };
      this.#kept.set(key, fresh);
      connection.watchAnswer(message.id, (wire) => this.#answered(key, fresh, asker, wire));
      return false;
    }
    if (known.method !== message.method) {
      connection.fail(message.id, 'invalid_params', 'this requestKey was used for another method');
      return true;
    }
    known.asker = asker;
    if (known.answer) tell(known, known.answer);
    return true;
  }

  #answered(key: string, entry: Remembered, first: Asker, wire: string): void {
    const message = parseMessage(wire);
    if (message.kind !== 'response') return;
    entry.answer = message;
    if (this.#kept.get(key) === entry) this.#bytes += wire.length;
    if (entry.asker !== first) tell(entry, message);
  }

  #expire(): void {
    for (const [key, { at, answer }] of this.#kept) {
      const tooMuch = this.#kept.size > MAX_KEPT || this.#bytes > REQUEST_MEMORY_BYTES;
      if (this.#now() - at < KEPT_MS && !tooMuch) break;
      if (tooMuch) boundHit('request_memory');
      this.#kept.delete(key);
      this.#bytes -= answer?.wire.length ?? 0;
    }
  }
}

function tell({ asker, method }: Remembered, answer: ResponseMessage): void {
  const { connection, id } = asker;
  const wire = withId(answer, id);
  const { result } = answer.value;
  const made = MAKES_A_SESSION.has(method) && isObject(result) ? result : {};
  const { sessionId } = made;
  const opened = typeof sessionId === 'string' ? connection.house.registry.get(sessionId) : undefined;
  if (opened && 'session' in opened && connection.open && !connection.sessions.has(opened.session)) {
    // As after the first answer, the client is on its session from there on.
    const { row } = opened.session;
    const eventId = parseEventId(sidecarOf(made)['eventId']);
    const at = { seq: Math.max(row.low, eventId?.seq ?? 0), offset: 0 };
    attachAt(connection, opened.session, at).owe({ ...at, what: 'answer', wire });
    opened.session.attached(connection);
  } else connection.send(wire);
  connection.kick();
}

function keyOf(connection: Connection, message: RequestMessage): string | undefined {
  if (connection.identity === undefined || NOT_KEPT.has(message.method)) return undefined;
  const { requestKey } = sidecarOf(paramsOf(message));
  if (typeof requestKey !== 'string' || requestKey === '' || requestKey.length > MAX_KEY) return undefined;
  return `${connection.identity}\0${requestKey}`;
}
