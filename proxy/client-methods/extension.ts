/**
 * `_sidecar/history`, `_sidecar/events` and `_sidecar/status`: what a client may ask about a session without touching
 * it. A session that nobody uses is not opened for them; it is shown as repair would leave it.
 */
import { rpcError } from '../../protocol/error.ts';
import { parseEventId, settledId } from '../../protocol/event-id.ts';
import { type RequestMessage, errorText, paramsOf, responseText } from '../../protocol/json-rpc.ts';
import { stringifyWire } from '../../protocol/wire-text.ts';
import { decodeRecord, type StoredEvent, type UnreadableRecord } from '../../storage/event-codec.ts';
import type { SessionRow } from '../../storage/event-log.ts';
import { HistoryLogDamage } from '../../storage/history-cache.ts';
import { updatesOf } from '../../storage/history-fold.ts';
import type { Connection } from '../connection.ts';
import { eventJson } from '../event-json.ts';
import type { Session } from '../session/session.ts';

const EVENTS = 100;
const MAX_EVENTS = 1000;
const EVENTS_BYTES = 1024 * 1024;

/** A session as it is asked about: open, or cold with the events that repair would add. */
interface Shown {
  readonly row: SessionRow;
  readonly session: Session | undefined;
  readonly tail: readonly StoredEvent[];
}

export function sidecarHistory(connection: Connection, message: RequestMessage): void {
  const shown = shownSession(connection, message);
  const before = shown && seqOf(connection, message, shown.row, 'before');
  const limit = shown && countOf(connection, message);
  if (!shown || before === 'bad' || limit === 'bad') return;
  const { row, tail } = shown;
  const also = tail.flatMap((event) => updatesOf(event));
  connection.house.history.page(row, { beforeSeq: before, limit, also }).then(
    (page) => {
      const lastEventId = tail.length > 0 ? settledId(row.logId, (tail.at(-1) as StoredEvent).seq) : page.lastEventId;
      connection.send(responseText(message.id, stringifyWire({ ...page, lastEventId })));
      connection.kick();
    },
    (error: unknown) => {
      if (error instanceof HistoryLogDamage) damaged(connection, message, row, error.seq, error.message);
      else {
        connection.house.logger.error({ err: error, sessionId: row.sessionId }, 'history failed');
        connection.fail(message.id, 'internal');
      }
      connection.kick();
    },
  );
}

/** Events as `acp-sidecar events --json` prints them, oldest first, with `nextAfter` when there are more. */
export function sidecarEvents(connection: Connection, message: RequestMessage): void {
  const shown = shownSession(connection, message);
  const after = shown && seqOf(connection, message, shown.row, 'after');
  const limit = shown && countOf(connection, message);
  const { types } = paramsOf(message);
  if (!shown || after === 'bad' || limit === 'bad') return;
  if (types !== undefined && !(Array.isArray(types) && types.every((type) => typeof type === 'string'))) {
    connection.fail(message.id, 'invalid_params', 'types must be an array of strings');
    return;
  }
  const { row, tail } = shown;
  const { log } = connection.house;
  const wanted = types === undefined ? undefined : new Set<string>(types);
  const page = new EventPage(row.logId, wanted, Math.min(limit ?? EVENTS, MAX_EVENTS));
  const last = log.lastSeq(row.num);
  const from = Math.max(row.low, (after ?? row.low - 1) + 1);
  let bad: UnreadableRecord | undefined;
  const scan = log.scan(row.num, from, last, (seq, record, length) => {
    const event = decodeRecord(record, length, seq);
    if ('unreadable' in event) {
      bad = event;
      return false;
    }
    return page.take(event);
  });
  if (bad) damaged(connection, message, row, bad.seq, bad.detail);
  else if (scan.outcome === 'gap') damaged(connection, message, row, scan.seq, 'it is missing');
  else {
    for (const event of tail) if (event.seq >= from && !page.take(event)) break;
    connection.send(responseText(message.id, page.result(settledId(row.logId, tail.at(-1)?.seq ?? last))));
  }
}

export function sidecarStatus(connection: Connection, message: RequestMessage): void {
  const shown = shownSession(connection, message);
  if (!shown) return;
  const { row, session, tail } = shown;
  const { agentHost, log } = connection.house;
  const driver = session?.turns.current?.client;
  const clients = [...(session?.clients.keys() ?? [])].map((client) => {
    const { clientId, name, role } = client;
    return { clientId, name, role, driver: client === driver };
  });
  const status = {
    turn: session?.turns.status ?? null,
    agent: agentHost.link ? { state: 'ready', pid: agentHost.pid } : { state: 'exited' },
    clients,
    lastEventId: settledId(row.logId, session?.order.head ?? tail.at(-1)?.seq ?? log.lastSeq(row.num)),
    bound: session?.agentSessionId !== undefined,
  };
  connection.send(responseText(message.id, stringifyWire(status)));
}

/** Collects events up to a count and a size; at least one. */
class EventPage {
  readonly #logId: string;
  readonly #types: ReadonlySet<string> | undefined;
  readonly #limit: number;
  readonly #lines: string[] = [];
  #bytes = 0;
  #lastSeq = 0;
  #more = false;

  constructor(logId: string, types: ReadonlySet<string> | undefined, limit: number) {
    this.#logId = logId;
    this.#types = types;
    this.#limit = limit;
  }

  /** False when the page is full. */
  take(event: StoredEvent): boolean {
    if (this.#types && !this.#types.has(event.type)) return true;
    if (this.#lines.length >= this.#limit || this.#bytes >= EVENTS_BYTES) {
      this.#more = true;
      return false;
    }
    const line = eventJson(this.#logId, event);
    this.#lines.push(line);
    this.#bytes += line.length;
    this.#lastSeq = event.seq;
    return true;
  }

  /** Wire text. */
  result(lastEventId: string): string {
    const next = this.#more ? `,"nextAfter":"${settledId(this.#logId, this.#lastSeq)}"` : '';
    return `{"events":[${this.#lines.join(',')}],"lastEventId":"${lastEventId}"${next}}`;
  }
}

/** Undefined when the client has been told why not. */
function shownSession(connection: Connection, message: RequestMessage): Shown | undefined {
  const { registry, log, coldViews } = connection.house;
  const { sessionId } = paramsOf(message);
  const row = typeof sessionId === 'string' ? log.row(sessionId) : undefined;
  if (!row || row.tombstone) {
    connection.fail(message.id, 'unknown_session', undefined, { sessionId });
    return undefined;
  }
  for (const session of registry.open()) if (session.sessionId === sessionId) return { row, session, tail: [] };
  const tail = coldViews.tail(row);
  if ('events' in tail) return { row, session: undefined, tail: tail.events };
  connection.send(errorText(message.id, stringifyWire(tail.error)));
  return undefined;
}

function seqOf(
  connection: Connection,
  message: RequestMessage,
  row: SessionRow,
  member: 'before' | 'after',
): number | undefined | 'bad' {
  const given = paramsOf(message)[member];
  if (given === undefined || given === null) return undefined;
  const id = parseEventId(given);
  if (id && id.logId === row.logId) return id.seq;
  connection.fail(message.id, 'invalid_params', `${member} must be an eventId of this session`);
  return 'bad';
}

function countOf(connection: Connection, message: RequestMessage): number | undefined | 'bad' {
  const { limit } = paramsOf(message);
  if (limit === undefined || limit === null) return undefined;
  if (typeof limit === 'number' && Number.isSafeInteger(limit) && limit >= 1) return limit;
  connection.fail(message.id, 'invalid_params', 'limit must be a whole number above 0');
  return 'bad';
}

function damaged(connection: Connection, message: RequestMessage, row: SessionRow, seq: number, detail: string): void {
  const error = rpcError('log_damaged', `event ${seq}: ${detail}`, { sessionId: row.sessionId, seq });
  connection.send(errorText(message.id, stringifyWire(error)));
}
