/** `acp-sidecar delete ID`: takes a session and its events away, for everyone. */
import { runWriteCommand } from './write-store.ts';

export function deleteSession(storeDir: string, sessionId: string): Promise<void> {
  return runWriteCommand(storeDir, { command: 'delete', sessionId });
}
