/**
 * The sessions that are open in this process: by their public id, and by the id that they have in the agent.
 *
 * An update for an id that no session is bound to waits while a `session/new` or `session/fork` is on its way (its
 * response will name the session); else it belongs to the session that announced that id as its child, else to the one
 * that was once bound to it, else to the only one with a running turn, else to the last active one.
 */
import type { RpcError } from '../protocol/error.ts';
import { stringifyWire } from '../protocol/wire-text.ts';
import type { SessionRow } from '../storage/event-log.ts';
import { isTaken } from '../storage/session-index.ts';
import { MAX_CHILDREN, boundHit } from './bounds.ts';
import { IdleSessions, canSleep } from './idle-sessions.ts';
import { recordBound } from './agent/binding.ts';
import { EarlyUpdates } from './agent/early-updates.ts';
import { FormerIds } from './agent/former-ids.ts';
import { type ForkFacts, freeId, newRow, type NewSessionFacts } from './new-row.ts';
import { Swallow } from './agent/swallow.ts';
import { foldLog } from './session/open-session.ts';
import type { AcceptedText, IncomingUpdate } from './session/intake.ts';
import { Session, type SessionHost } from './session/session.ts';
import { emptySessionState } from '../protocol/v1/session-state.ts';

type Opened = { readonly session: Session } | { readonly error: RpcError } | undefined;

export class Registry {
  readonly #host: SessionHost;
  readonly #sessions = new Map<string, Session>();
  readonly #byAgentId = new Map<string, Session>();
  readonly #idle = new IdleSessions();
  readonly #usedAt = new WeakMap<Session, number>();
  readonly #maxOpen: number;
  readonly #children = new Map<string, Session>();
  readonly #former = new FormerIds();
  /** Imports that are under way. */
  readonly #collecting = new Map<string, (update: IncomingUpdate) => void>();
  readonly #early = new EarlyUpdates((id, update) => void this.update(id, update));

  constructor(host: SessionHost, maxOpen: number) {
    this.#host = host;
    this.#maxOpen = maxOpen;
  }

  /** Sessions that are open now. */
  open(): IterableIterator<Session> {
    return this.#sessions.values();
  }

  /** An open session, or one opened from the log; undefined when there is none of this id. */
  get(sessionId: string): Opened {
    const session = this.#sessions.get(sessionId);
    if (session?.deleting) return undefined;
    if (session) {
      this.#used(session);
      return session.damage ? { error: session.damage } : { session };
    }
    const row = this.#host.log.row(sessionId);
    if (!row || row.tombstone) return undefined;
    const folded = foldLog(this.#host.log, row);
    if ('error' in folded) return folded;
    const opened = new Session(this.#host, row, folded.state, folded.head);
    this.#used(opened);
    const asleep = this.#idle.wake(sessionId);
    if (asleep?.agentSessionId !== undefined) {
      opened.agentSessionId = asleep.agentSessionId;
      opened.notApplied = asleep.notApplied;
      this.route(asleep.agentSessionId, opened);
    }
    opened.repair();
    this.#makeRoom();
    return { session: opened };
  }

  byAgentId(agentSessionId: string): Session | undefined {
    return this.#bound(agentSessionId) ?? this.#children.get(agentSessionId);
  }

  /** The session that lives under this id in the agent; one that sleeps is opened. */
  #bound(agentSessionId: string): Session | undefined {
    const session = this.#byAgentId.get(agentSessionId);
    if (session) return session;
    const sleeping = this.#idle.sessionIdOf(agentSessionId);
    const opened = sleeping === undefined ? undefined : this.get(sleeping);
    return opened && 'session' in opened ? opened.session : undefined;
  }

  /** Keeps `#sessions` in the order of use, the longest unused first. */
  #used(session: Session): void {
    this.#usedAt.set(session, this.#host.now());
    this.#sessions.delete(session.sessionId);
    this.#sessions.set(session.sessionId, session);
  }

  #makeRoom(): void {
    const now = this.#host.now();
    for (const session of this.#sessions.values()) {
      if (this.#sessions.size <= this.#maxOpen) return;
      if (!canSleep(session, this.#usedAt.get(session) ?? 0, now)) continue;
      boundHit('sessions');
      const { agentSessionId } = session;
      this.#idle.add(session);
      if (agentSessionId !== undefined) this.#byAgentId.delete(agentSessionId);
      this.#sessions.delete(session.sessionId);
      this.#host.asleep(session);
      session.close();
    }
  }

  /** The session that an agent's request belongs to: as for updates, a child's goes to its parent. */
  ownerOf(agentSessionId: string): Session | undefined {
    if (this.#former.has(agentSessionId)) return undefined;
    return this.#bound(agentSessionId) ?? this.#parentOf(agentSessionId);
  }

  /** A session that is being made and that the agent has not named yet may have this id. */
  mayBeNew(agentSessionId: string): boolean {
    return this.#early.expected && !this.#former.has(agentSessionId) && !isTaken(this.#host.log, agentSessionId);
  }

  /** True when somebody else lived there, or nobody: an agent may give two sessions one id. */
  route(agentSessionId: string, session: Session): boolean {
    if (this.#byAgentId.get(agentSessionId) === session) return false;
    this.#former.revive(agentSessionId);
    this.#children.delete(agentSessionId);
    this.#byAgentId.set(agentSessionId, session);
    return true;
  }

  /**
   * The session does not live there any more; what the agent still says under the id goes to its log.
   * @param replaying a restore that failed and whose replay may not be over
   */
  unroute(agentSessionId: string, replaying?: Swallow): void {
    this.#former.retire(agentSessionId, this.#byAgentId.get(agentSessionId), replaying);
    this.#byAgentId.delete(agentSessionId);
    this.#children.delete(agentSessionId);
  }

  /** A request that makes a session has gone to the agent: updates for unknown ids wait. Call the result when it is answered. */
  creating(): () => void {
    return this.#early.creating();
  }

  /** What has come early for an id is not wanted: the agent replayed what a log has. */
  dropEarly(agentSessionId: string): void {
    this.#early.take(agentSessionId);
  }

  /** While `take` is set, updates for an id that no session has go there. Call the result to end that. */
  collect(agentSessionId: string, take: (update: IncomingUpdate) => void): () => void {
    this.#former.revive(agentSessionId);
    this.#collecting.set(agentSessionId, take);
    return () => this.#collecting.delete(agentSessionId);
  }

  /** Makes a session that the agent has just named. `created` runs when that is durable, `refused` on a full disk. */
  create(facts: NewSessionFacts, created: (session: Session) => void, refused: (message: string) => void): void {
    const { agentSessionId } = facts;
    const row = newRow(this.#host, freeId(this.#host.log, agentSessionId, this.#sessions), facts);
    const session = new Session(this.#host, { ...row, bound: [agentSessionId] }, emptySessionState(), 0);
    this.#begin(session, agentSessionId, facts, created, refused);
    recordBound(session, agentSessionId, 'new', facts.response);
    for (const update of this.#early.take(agentSessionId)) session.intake.update(update);
  }

  /** Makes a session that shares the events of `parent` up to `seq`, without copying one. */
  fork(
    parent: Session,
    seq: number,
    facts: ForkFacts,
    created: (session: Session) => void,
    refused: (message: string) => void,
  ): void {
    const folded = foldLog(this.#host.log, parent.row, seq);
    if ('error' in folded) {
      refused(folded.error.message);
      return;
    }
    const { agentSessionId, response } = facts;
    const { num, low, title } = parent.row;
    const { log, newId } = this.#host;
    const sessionId = agentSessionId === undefined ? newId() : freeId(log, agentSessionId, this.#sessions);
    const row: SessionRow = {
      ...newRow(this.#host, sessionId, facts),
      ...(title === undefined ? {} : { title }),
      bound: agentSessionId === undefined ? [] : [agentSessionId],
      low,
      base: { num, seq },
    };
    const session = new Session(this.#host, row, folded.state, seq);
    if (agentSessionId !== undefined) session.replay = new Swallow(session);
    // Answered when the last of its first events is durable.
    this.#begin(session, agentSessionId, facts, () => session.order.note(() => created(session)), refused);
    session.record({
      type: 'session_forked',
      required: true,
      payload: stringifyWire({ parent: parent.sessionId, eventId: parent.eventId({ seq, offset: 0 }) }),
    });
    if (agentSessionId !== undefined && response !== undefined)
      recordBound(session, agentSessionId, 'resumed', response);
    session.repair();
  }

  /** The session is in the house; its first event and its row go into one commit. */
  #begin(
    session: Session,
    agentSessionId: string | undefined,
    facts: Omit<NewSessionFacts, 'agentSessionId' | 'response'>,
    created: (session: Session) => void,
    refused: (message: string) => void,
  ): void {
    const { sessionId } = session;
    session.agentSessionId = agentSessionId;
    this.#used(session);
    this.#makeRoom();
    if (agentSessionId !== undefined) this.route(agentSessionId, session);
    const giveUp = (message: string): void => {
      this.#sessions.delete(sessionId);
      if (agentSessionId !== undefined) this.#byAgentId.delete(agentSessionId);
      session.close();
      session.order.discard();
      refused(message);
    };
    session.setRow({});
    const { cwd, additionalDirectories, mcpServerNames: mcpServers } = facts;
    session.record(
      {
        type: 'session_created',
        required: true,
        payload: stringifyWire({ sessionId, cwd, additionalDirectories, mcpServers }),
      },
      { refused: giveUp, settled: () => created(session) },
    );
  }

  /**
   * Makes a session of what an agent has replayed of one that only it knew. Its events come first; the row and
   * `session_created` are committed last, so that one that is cut off is none. What is added to `updates` until then
   * comes behind them.
   */
  import(
    facts: NewSessionFacts,
    updates: readonly IncomingUpdate[],
    created: (session: Session) => void,
    refused: (message: string) => void,
  ): void {
    const { agentSessionId, cwd, additionalDirectories, mcpServerNames: mcpServers } = facts;
    const row = { ...newRow(this.#host, agentSessionId, facts), bound: [agentSessionId] };
    const session = new Session(this.#host, row, emptySessionState(), 0);
    const replayed = updates.length;
    for (const update of updates) session.intake.update(update);
    session.intake.flush();
    recordBound(session, agentSessionId, 'loaded', facts.response);
    session.dropRow();
    session.order.note(() => {
      session.setRow({});
      session.record(
        {
          type: 'session_created',
          required: true,
          payload: stringifyWire({ sessionId: agentSessionId, cwd, additionalDirectories, mcpServers, imported: true }),
        },
        {
          refused: (message) => {
            session.close();
            session.order.discard();
            refused(message);
          },
          settled: () => {
            session.agentSessionId = agentSessionId;
            this.#used(session);
            this.#makeRoom();
            this.route(agentSessionId, session);
            created(session);
            for (const update of updates.slice(replayed)) session.intake.update(update);
          },
        },
      );
    });
  }

  /**
   * Deletes a session: its row becomes a tombstone, so that the agent's copy is not imported again, and nobody is on it
   * any more. `done` gets what went wrong, if anything, and the ids that the session had in the agent that runs.
   */
  remove(session: Session, done: (problem: string | undefined, live: readonly string[]) => void): void {
    const { title } = session.row;
    session.deleting = true;
    session.record(
      { type: 'session_closed', payload: '{"deleted":true}' },
      {
        last: true,
        refused: (message) => {
          session.deleting = false;
          session.setRow({ tombstone: false, title: session.state.title ?? title ?? null });
          done(message, []);
        },
        settled: () => {
          for (const client of session.clients.keys()) client.detach(session);
          session.approvals.abandon();
          session.close();
          this.#sessions.delete(session.sessionId);
          done(undefined, this.#unrouteAll(session));
        },
      },
    );
    session.setRow({ tombstone: true, title: null });
  }

  /** The ids under which the session lived in the agent: nothing said under them leads to it any more. */
  #unrouteAll(session: Session): string[] {
    const live = [...this.#byAgentId].flatMap(([id, to]) => (to === session ? [id] : []));
    const children = [...this.#children].flatMap(([id, to]) => (to === session ? [id] : []));
    for (const id of [...live, ...children]) this.unroute(id);
    return live;
  }

  /** Finds the session of an update and hands it over. */
  update(agentSessionId: string, incoming: IncomingUpdate): { session: Session; text: AcceptedText } | undefined {
    const session = this.#bound(agentSessionId);
    if (session) {
      const text = session.intake.update(incoming);
      return text && { session, text };
    }
    if (this.#former.has(agentSessionId)) return this.#late(agentSessionId, incoming);
    const collect = this.#collecting.get(agentSessionId);
    if (collect) {
      collect(incoming);
      return undefined;
    }
    const announcer = this.#announcerOf(agentSessionId);
    if (!announcer && this.#early.expected) {
      this.#early.keep(agentSessionId, incoming);
      return undefined;
    }
    if (!announcer && this.#former.find(agentSessionId, this.#host.log)) {
      return this.#late(agentSessionId, incoming);
    }
    const parent = announcer ?? this.#lastActive();
    if (!parent) {
      this.#host.watch.messageDropped('agent_unknown_session');
      this.#host.logger.warn({ agentSessionId }, 'an update for a session that nobody knows was dropped');
      return undefined;
    }
    if (this.#children.size < MAX_CHILDREN) this.#children.set(agentSessionId, parent);
    const text = parent.intake.update({ ...incoming, childSessionId: agentSessionId });
    return text && { session: parent, text };
  }

  /** The agent says something under an id that nobody lives under now. */
  #late(agentSessionId: string, incoming: IncomingUpdate): undefined {
    const owner = this.#former.find(agentSessionId, this.#host.log)?.owner;
    const opened = owner === undefined ? undefined : this.get(owner);
    if (opened && 'session' in opened) {
      const how = this.#former.take(agentSessionId, opened.session, incoming);
      if (how === 'replay') this.#host.watch.messageDropped('agent_replay');
      return;
    }
    this.#host.watch.messageDropped(opened ? 'agent_unknown_session' : 'agent_deleted_session');
  }

  /** The agent process is gone: no session lives in it any more. */
  agentExited(message: string, exit?: { readonly code: number | null; readonly signal: string | null }): void {
    this.#byAgentId.clear();
    this.#idle.agentExited();
    this.#children.clear();
    this.#former.clear();
    for (const session of this.#sessions.values()) session.agentExited(message, exit);
  }

  close(): void {
    for (const session of this.#sessions.values()) session.close();
  }

  /** The session that is known to be the parent of a child. */
  #announcerOf(childId: string): Session | undefined {
    const known = this.#children.get(childId);
    if (known) return known;
    for (const session of this.#byAgentId.values()) if (session.state.children.has(childId)) return session;
    return undefined;
  }

  #parentOf(childId: string): Session | undefined {
    return this.#announcerOf(childId) ?? this.#lastActive();
  }

  /** Whose an unknown id most likely is. */
  #lastActive(): Session | undefined {
    const bound = [...this.#byAgentId.values()];
    const running = bound.filter((session) => session.turns.current !== undefined);
    if (running.length === 1) return running[0];
    let last: Session | undefined;
    for (const session of running.length > 1 ? running : bound) {
      if (!last || session.lastActive > last.lastActive) last = session;
    }
    return last;
  }
}
