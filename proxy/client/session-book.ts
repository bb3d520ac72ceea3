/**
 * The sessions that are open on this side, and how far each has come: the eventId of the last message that was handed
 * on. That is all a client needs to get exactly the rest.
 */
import { comparePositions, parseEventId, positionOf, settledId } from '../../protocol/event-id.ts';
import { type JsonObject, isObject } from '../../protocol/json-rpc.ts';
import { members, removeMembers, splice, stringifyWire } from '../../protocol/wire-text.ts';
import { withMembers, withSidecarMembers } from '../../protocol/sidecar-meta.ts';
import { chunkText } from '../../protocol/v1/chunk-text.ts';

export interface TrackedSession {
  readonly sessionId: string;
  /** Params of the newest new, load or resume, wire text: cwd, mcpServers and what else the client said. */
  params: string;
  cursor: string | undefined;
  /** Text of the message that is streaming, as far as it came: lost when a crash loses its run. */
  run: { seq: number; characters: number };
  /** Nothing of it is handed on until its next replay begins: it was put at the tip, behind a hole. */
  skipping: boolean;
  /** A replay that the local side asked for is on its way. */
  replaying: boolean;
  /** Its children that the local side loaded by their ids: the sidecar has to be told again. */
  readonly children: Set<string>;
  /** Its turn to be resumed is not over. */
  resuming: 'no' | 'cursor' | 'settled' | 'full' | 'replaced';
}

export class SessionBook {
  readonly #sessions = new Map<string, TrackedSession>();

  get all(): IterableIterator<TrackedSession> {
    return this.#sessions.values();
  }

  get size(): number {
    return this.#sessions.size;
  }

  get(sessionId: unknown): TrackedSession | undefined {
    return typeof sessionId === 'string' ? this.#sessions.get(sessionId) : undefined;
  }

  open(sessionId: string, params: string): TrackedSession {
    const known = this.#sessions.get(sessionId);
    if (known) {
      known.params = params;
      return known;
    }
    const session: TrackedSession = {
      sessionId,
      params,
      cursor: undefined,
      run: { seq: 0, characters: 0 },
      skipping: false,
      replaying: false,
      children: new Set(),
      resuming: 'no',
    };
    this.#sessions.set(sessionId, session);
    return session;
  }

  close(sessionId: string): void {
    this.#sessions.delete(sessionId);
  }

  /** The session that an update is about; a child's updates carry eventIds of its parent's log. */
  ofUpdate(params: JsonObject): TrackedSession | undefined {
    const own = this.get(params['sessionId']);
    if (own) return own;
    const logId = parseEventId(eventIdOf(params))?.logId;
    if (logId === undefined) return undefined;
    for (const session of this.#sessions.values()) {
      if (parseEventId(session.cursor)?.logId === logId) return session;
    }
    return undefined;
  }
}

/** `params._meta.eventId`. */
export function eventIdOf(params: JsonObject): string | undefined {
  const meta = params['_meta'];
  const eventId = isObject(meta) ? meta['eventId'] : undefined;
  return typeof eventId === 'string' ? eventId : undefined;
}

/** A message with this cursor was handed on. `update`: for its text. */
export function advance(session: TrackedSession, cursor: string, update?: unknown): void {
  session.cursor = cursor;
  const id = parseEventId(cursor);
  if (id?.form !== 'chunk') {
    session.run = { seq: 0, characters: 0 };
    return;
  }
  const text = (isObject(update) && chunkText(update)) || '';
  const before = session.run.seq === id.seq ? session.run.characters : 0;
  session.run = { seq: id.seq, characters: before + text.length };
}

/**
 * A response with this cursor came. A prompt that was sent again is answered from the log with the end of its turn, when the
 * session has gone on for long: a response never moves a cursor back.
 */
export function advanceForward(session: TrackedSession, cursor: string): void {
  if (isAhead(cursor, session.cursor)) advance(session, cursor);
}

/** True when `cursor` is further on than `than` in one log, or belongs to another log. */
export function isAhead(cursor: string, than: string | undefined): boolean {
  const next = parseEventId(cursor);
  const known = parseEventId(than);
  if (!next || !known || next.logId !== known.logId) return true;
  return comparePositions(positionOf(next), positionOf(known)) > 0;
}

/** An update of a child was handed on. Its replay begins in front of where its parent is: that never moves a cursor back. */
export function advanceByChild(session: TrackedSession, cursor: string, update: unknown): void {
  if (isAhead(cursor, session.cursor)) advance(session, cursor, update);
}

/** The last position of a cursor that is certainly in the log: in front of the text it lies in. */
export function settledCursor(cursor: string): string | undefined {
  const id = parseEventId(cursor);
  if (!id) return undefined;
  return id.form === 'settled' ? cursor : settledId(id.logId, id.seq - 1);
}

/** Params of the `session/resume` (or load) that goes on where a session was cut. Wire text. */
export function resumeParams(
  session: TrackedSession,
  cursor: string | undefined,
  sessionId: string = session.sessionId,
): string {
  const cleared = splice(session.params, removeMembers(session.params, members(session.params), ['_meta']));
  const params = withMembers(cleared, { sessionId: stringifyWire(sessionId) });
  return cursor === undefined ? params : withSidecarMembers(params, { afterEventId: cursor, fallback: 'none' });
}
