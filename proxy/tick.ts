/**
 * One tick: what happened to sessions since the last one is committed together, and what they owe their clients goes
 * out in one write each.
 */
import type { Session } from './session/session.ts';

/** A connection, as far as it is pumped. */
export interface Pumped {
  pump(): void;
}

export interface TickDuties {
  /** Offers what a session has to the next commit. */
  readonly commit: (session: Session) => void;
  /** Every session has been looked at; before clients are served. */
  readonly committed: () => void;
}

export class Tick {
  readonly #duties: TickDuties;
  #sessions = new Set<Session>();
  #connections: Pumped[] = [];
  #scheduled = false;

  constructor(duties: TickDuties) {
    this.#duties = duties;
  }

  /** The session has something to commit or to show. */
  touch(session: Session): void {
    this.#sessions.add(session);
    if (!this.#scheduled) this.#schedule();
  }

  /** The connection has something to send. Each asks once until it is pumped. */
  kick(connection: Pumped): void {
    this.#connections.push(connection);
    if (!this.#scheduled) this.#schedule();
  }

  forget(session: Session): void {
    this.#sessions.delete(session);
  }

  #schedule(): void {
    this.#scheduled = true;
    process.nextTick(this.#run);
  }

  readonly #run = (): void => {
    if (this.#sessions.size > 0) {
      const sessions = this.#sessions;
      this.#sessions = new Set();
      for (const session of sessions) {
        this.#duties.commit(session);
        for (const client of session.clients.keys()) client.kick();
      }
      this.#duties.committed();
    }
    const connections = this.#connections;
    this.#connections = [];
    this.#scheduled = false;
    for (const connection of connections) connection.pump();
  };
}
