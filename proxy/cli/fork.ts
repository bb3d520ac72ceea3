/** `acp-sidecar fork ID`: a second session with the same past; prints its id. */
import { runWriteCommand } from './write-store.ts';

export function forkSession(storeDir: string, sessionId: string, atEventId: string | undefined): Promise<void> {
  return runWriteCommand(storeDir, { command: 'fork', sessionId, atEventId });
}
