/** What a server does more when it is a daemon: it ends when nobody needs it. */
import type { House } from '../house.ts';
import { watchIdle } from './idle-watch.ts';

/** Takes it up; the result ends it. `stop` ends the server in good order. */
export function leaveWhenIdle(idleExitMs: number, house: House, stop: () => void): () => void {
  return watchIdle(idleExitMs, {
    needed: () => {
      if (house.connections.size > 0) return true;
      for (const session of house.registry.open()) {
        if (session.turns.busy || session.approvals.pending > 0) return true;
      }
      return false;
    },
    now: house.now,
    idle: () => {
      house.logger.info({ idleExitMs }, 'nobody needs this daemon; leaving');
      stop();
    },
  });
}
