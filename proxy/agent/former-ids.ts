/**
 * Ids under which no session lives in the agent now, and whose they were: what the agent still says under them belongs to
 * the log of that session, but for what it replays there.
 *
 *   closed, or not restored --retire--> former --says something--> the session's log, past a filter for late replays
 *                                         |
 *                                         +--bound again--> revived
 *
 * An id that was bound in an earlier life of the agent is found in the rows. Of a deleted session nothing is kept.
 */
import type { EventLog, SessionRow } from '../../storage/event-log.ts';
import type { IncomingUpdate } from '../session/intake.ts';
import type { ReplayFilter, Session } from '../session/session.ts';
import { Swallow } from './swallow.ts';

interface Former {
  /** In this life of the agent; else it is only known from a row. */
  readonly retired: boolean;
  /** The public id of the session that lived there; undefined when it was deleted, or there was none. */
  readonly owner: string | undefined;
  /** Keeps back what the agent replays there, for this object of the session. */
  filter?: { readonly session: Session; readonly replay: ReplayFilter };
}

/** Of more the oldest are looked for in the rows again. */
const MAX_FORMER = 4096;
const MAX_STRANGE = 1024;

export class FormerIds {
  readonly #byId = new Map<string, Former>();
  /** Ids that no row has: an agent may say much under one. */
  readonly #strange = new Set<string>();

  /** Whether a session lived there in this life of the agent and does not any more. */
  has(agentSessionId: string): boolean {
    return this.#byId.get(agentSessionId)?.retired === true;
  }

  /** @param replaying a restore that failed and whose replay may not be over */
  retire(agentSessionId: string, owner: Session | undefined, replaying?: Swallow): void {
    const session = owner?.deleting === true ? undefined : owner;
    const former = this.#keep(agentSessionId, { retired: true, owner: session?.sessionId });
    if (!session || !replaying) return;
    const filter = { session, replay: replaying };
    former.filter = filter;
    void replaying.answered(false).then(() => {
      if (former.filter === filter) delete former.filter;
    });
  }

  revive(agentSessionId: string): void {
    this.#byId.delete(agentSessionId);
    this.#strange.delete(agentSessionId);
  }

  /** The agent process is gone. */
  clear(): void {
    this.#byId.clear();
    this.#strange.clear();
  }

  /** Whose the id was, now or in an earlier life; undefined when no session is known to have had it. */
  find(agentSessionId: string, log: Pick<EventLog, 'rows' | 'isForgotten'>): Pick<Former, 'owner'> | undefined {
    const former = this.#byId.get(agentSessionId);
    if (former) return former;
    if (this.#strange.has(agentSessionId)) return undefined;
    let newest: SessionRow | undefined;
    for (const row of log.rows()) {
      if (row.bound.includes(agentSessionId) && (!newest || row.updatedAt >= newest.updatedAt)) newest = row;
    }
    if (!newest && !log.isForgotten(agentSessionId)) {
      if (this.#strange.size >= MAX_STRANGE) this.#strange.clear();
      this.#strange.add(agentSessionId);
      return undefined;
    }
    return this.#keep(agentSessionId, { retired: false, owner: newest?.tombstone ? undefined : newest?.sessionId });
  }

  /** Takes a late update into its session, unless it is part of a replay. */
  take(agentSessionId: string, session: Session, update: IncomingUpdate): 'taken' | 'replay' {
    const former = this.#byId.get(agentSessionId);
    if (former && former.filter?.session !== session) {
      const replay = new Swallow(session);
      replay.watch();
      former.filter = { session, replay };
    }
    if (former?.filter?.replay.admits(update) === false) return 'replay';
    session.heardLate = true;
    session.intake.update(update);
    return 'taken';
  }

  #keep(agentSessionId: string, former: Former): Former {
    this.#byId.delete(agentSessionId);
    this.#byId.set(agentSessionId, former);
    for (const oldest of this.#byId.keys()) {
      if (this.#byId.size <= MAX_FORMER) break;
      this.#byId.delete(oldest);
    }
    return former;
  }
}
