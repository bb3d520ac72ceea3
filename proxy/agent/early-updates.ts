/** Updates for sessions that are being made and that the agent has not named yet. They wait for the response that does. */
import { MAX_EARLY_BYTES, boundHit } from '../bounds.ts';
import type { IncomingUpdate } from '../session/intake.ts';

const EARLY_OVERHEAD = 1024;

export class EarlyUpdates {
  readonly #waiting = new Map<string, IncomingUpdate[]>();
  readonly #release: (agentSessionId: string, update: IncomingUpdate) => void;
  #bytes = 0;
  #creating = 0;

  /** @param release gets what nobody has taken when no session is being made any more */
  constructor(release: (agentSessionId: string, update: IncomingUpdate) => void) {
    this.#release = release;
  }

  /** Whether a request that makes a session is on its way. */
  get expected(): boolean {
    return this.#creating > 0;
  }

  /** A request that makes a session has gone to the agent. Call the result when it is answered. */
  creating(): () => void {
    this.#creating++;
    return () => {
      this.#creating--;
      if (this.#creating > 0) return;
      this.#bytes = 0;
      for (const [id, updates] of this.#waiting) {
        this.#waiting.delete(id);
        for (const update of updates) this.#release(id, update);
      }
    };
  }

  keep(agentSessionId: string, update: IncomingUpdate): void {
    const list = this.#waiting.get(agentSessionId) ?? [];
    // What is parsed of an update takes several times the memory of its text.
    this.#bytes += update.wire.length + EARLY_OVERHEAD;
    if (this.#bytes <= MAX_EARLY_BYTES) {
      list.push(update);
      this.#waiting.set(agentSessionId, list);
    } else boundHit('early_updates');
  }

  /** What has come for a session, which has its name now. */
  take(agentSessionId: string): readonly IncomingUpdate[] {
    const updates = this.#waiting.get(agentSessionId) ?? [];
    this.#waiting.delete(agentSessionId);
    return updates;
  }
}
