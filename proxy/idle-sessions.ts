/**
 * Sessions that nobody uses leave memory when there are too many, the longest unused first; the next message for one
 * opens it again from the log. What a sleeping session keeps is where it lives in the agent: it is not bound again.
 *
 *   open --(too many, idle)--> asleep --(a client names it, the agent says something)--> open
 */
import { repairEvents } from '../storage/repair.ts';
import type { Session } from './session/session.ts';

export interface Asleep {
  readonly sessionId: string;
  readonly agentSessionId: string | undefined;
  readonly notApplied: readonly string[];
}

/** Whoever has just asked for a session may still be about to use it. */
const UNUSED_MS = 10_000;
/** What an agent replays of a session that it restored has come by then. */
const REPLAY_OVER_MS = 60_000;

/** Nothing of it is only in memory. */
export function canSleep(session: Session, usedAt: number, now: number): boolean {
  return (
    now - usedAt >= UNUSED_MS &&
    session.clients.size === 0 &&
    session.holds === 0 &&
    !session.deleting &&
    session.order.quiet &&
    session.order.peekRow() === undefined &&
    !session.turns.busy &&
    session.approvals.idle &&
    session.clientRequests.idle &&
    session.binding === undefined &&
    (session.replay === undefined || now - usedAt >= REPLAY_OVER_MS) &&
    session.primer === undefined &&
    session.damage === undefined &&
    // Updates of its children would no longer find it.
    session.state.children.size === 0 &&
    // Opened again it would be repaired as after a crash.
    repairEvents(session.state, '').length === 0
  );
}

export class IdleSessions {
  readonly #byId = new Map<string, Asleep>();
  readonly #byAgentId = new Map<string, Asleep>();

  add(session: Session): void {
    const { sessionId, agentSessionId, notApplied } = session;
    if (agentSessionId === undefined) return;
    const asleep = { sessionId, agentSessionId, notApplied };
    this.#byId.set(sessionId, asleep);
    this.#byAgentId.set(agentSessionId, asleep);
  }

  /** The public id of the sleeping session that lives under an id in the agent. */
  sessionIdOf(agentSessionId: string): string | undefined {
    return this.#byAgentId.get(agentSessionId)?.sessionId;
  }

  wake(sessionId: string): Asleep | undefined {
    const asleep = this.#byId.get(sessionId);
    if (!asleep) return undefined;
    this.#byId.delete(sessionId);
    if (asleep.agentSessionId !== undefined) this.#byAgentId.delete(asleep.agentSessionId);
    return asleep;
  }

  /** The agent process is gone, and with it every place that a session had there. */
  agentExited(): void {
    this.#byId.clear();
    this.#byAgentId.clear();
  }
}
