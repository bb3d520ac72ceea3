/** `acp-sidecar import FILE`: makes a session of an export; prints its id. */
import { resolve } from 'node:path';
import { runWriteCommand } from './write-store.ts';

export function importFile(storeDir: string, file: string, sessionId: string | undefined): Promise<void> {
  return runWriteCommand(storeDir, { command: 'import', file: resolve(file), sessionId });
}
