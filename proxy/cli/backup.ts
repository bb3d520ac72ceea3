/** `acp-sidecar backup DIR`: a copy of the store, also while it is in use. */
import { resolve } from 'node:path';
import { runWriteCommand } from './write-store.ts';

export function backup(storeDir: string, dir: string): Promise<void> {
  return runWriteCommand(storeDir, { command: 'backup', dir: resolve(dir) });
}
