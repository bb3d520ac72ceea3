/** `acp-sidecar repair ID`: closes what the end of a log leaves open, as opening the session would. */
import { runWriteCommand } from './write-store.ts';

export function repairSession(storeDir: string, sessionId: string, json: boolean): Promise<void> {
  return runWriteCommand(storeDir, { command: 'repair', sessionId, json });
}
