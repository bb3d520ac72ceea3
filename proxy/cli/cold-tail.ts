/** The repaired view for commands that only read: the events that opening a cold session would append. */
import type { StoredEvent } from '../../storage/event-codec.ts';
import type { EventLog, SessionRow } from '../../storage/event-log.ts';
import { REPAIR_REASON, repairedView } from '../../storage/repair.ts';
import { storeOwner } from '../../storage/store-lock.ts';
import { askServer } from '../control/control-client.ts';
import { foldLog } from '../session/open-session.ts';

/** None for a session that a running server has open, and for a log that cannot be read. */
export async function coldTail(storeDir: string, log: EventLog, row: SessionRow): Promise<readonly StoredEvent[]> {
  const folded = foldLog(log, row);
  if ('error' in folded) return [];
  const events = repairedView(folded.state, folded.head, REPAIR_REASON, Date.now());
  if (events.length === 0 || (await isOpened(storeDir, row.sessionId))) return [];
  return events;
}

/** Does a running server have it open? One that cannot be asked may. */
export async function isOpened(storeDir: string, sessionId: string): Promise<boolean> {
  let answer = '';
  try {
    if (await askServer(storeDir, { command: 'opened', sessionId }, (line) => (answer = line)))
      return answer === 'true';
  } catch {
    return true;
  }
  return (await storeOwner(storeDir)) !== undefined;
}
