import { at, isRequest, isResponse, type Message } from './json.ts';
import type { RecordedEntry, RecordedLife } from './recording.ts';

/**
 * One thing the agent does or waits for inside an exchange, in recorded order.
 * `answer` waits for the client's answer to the agent's request `id`, `cancel` for a `session/cancel`.
 */
export type Step =
  | { readonly kind: 'emit'; readonly index: number; readonly text: string; readonly message: Message }
  | { readonly kind: 'answer'; readonly index: number; readonly id: number | string | null }
  | { readonly kind: 'cancel'; readonly index: number };

/** A recorded request of the client and all that the agent did because of it, up to the next cause. */
export interface Exchange {
  readonly index: number;
  readonly method: string;
  readonly request: Message;
  readonly sessionId: string | undefined;
  readonly steps: Step[];
  /** Where its response stands in the recording; undefined when the agent never answered. */
  responseAt: number | undefined;
}

function sessionOf(message: Message): string | undefined {
  const id = at(message, 'params', 'sessionId');
  return typeof id === 'string' ? id : undefined;
}

/**
 * Sorts what the agent did to the requests that caused it: a response to its request; everything else of a session to
 * the oldest prompt, load or resume of it that is open, else to its last exchange; a session nobody has named yet to the
 * open `session/new` or `session/fork`; what names no session to the newest exchange. A prompt that is never answered
 * ends with the next cancel.
 */
export function exchangesOf(life: RecordedLife): Exchange[] {
  const exchanges: Exchange[] = [];
  const open: Exchange[] = [];
  const lastOf = new Map<string, Exchange>();
  const cause = (message: Message): Exchange | undefined => {
    const session = sessionOf(message);
    if (session === undefined) return open.at(-1) ?? exchanges.at(-1);
    const making = (entry: Exchange): boolean => entry.method === 'session/new' || entry.method === 'session/fork';
    return (
      open.find((entry) => entry.sessionId === session) ?? lastOf.get(session) ?? open.find(making) ?? exchanges.at(-1)
    );
  };
  const willBeAnswered = new Set(
    life.entries
      .filter(({ from, message }) => from === 'agent' && isResponse(message))
      .map(({ message }) => message.id),
  );
  const asked = new Map<number | string | null | undefined, Exchange>();
  const fromClient = (entry: RecordedEntry): void => {
    const { message, index } = entry;
    if (message.method === 'session/cancel') {
      const session = sessionOf(message);
      const exchange = open.find((entry) => entry.sessionId === session);
      exchange?.steps.push({ kind: 'cancel', index });
      if (exchange && !willBeAnswered.has(exchange.request.id)) open.splice(open.indexOf(exchange), 1);
    } else if (message.method !== undefined && isRequest(message)) {
      const exchange: Exchange = {
        index,
        method: message.method,
        request: message,
        sessionId: sessionOf(message),
        steps: [],
        responseAt: undefined,
      };
      exchanges.push(exchange);
      open.push(exchange);
    } else if (isResponse(message) && message.id !== undefined) {
      const exchange = asked.get(message.id);
      if (exchange && open.includes(exchange)) exchange.steps.push({ kind: 'answer', index, id: message.id });
    }
  };
  const fromAgent = (entry: RecordedEntry): void => {
    const { message, index, text } = entry;
    if (!isResponse(message)) {
      const exchange = cause(message);
      exchange?.steps.push({ kind: 'emit', index, text, message });
      if (exchange && isRequest(message)) asked.set(message.id, exchange);
      return;
    }
    const exchange = open.find(({ request }) => request.id === message.id);
    if (!exchange) return;
    exchange.steps.push({ kind: 'emit', index, text, message });
    exchange.responseAt = index;
    open.splice(open.indexOf(exchange), 1);
    const session = exchange.sessionId ?? at(message, 'result', 'sessionId');
    if (typeof session === 'string') lastOf.set(session, exchange);
  };
  for (const entry of life.entries) {
    if (entry.from === 'client') fromClient(entry);
    else fromAgent(entry);
  }
  return exchanges;
}
