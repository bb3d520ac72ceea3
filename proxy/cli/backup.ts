/** `acp-sidecar backup DIR`: a copy of the store, also while it is in use. */
import { existsSync, realpathSync } from 'node:fs';
import { basename, dirname, join, resolve, sep } from 'node:path';
import { CommandError } from './exit-code.ts';
import { runWriteCommand } from './write-store.ts';

export function backup(storeDir: string, target: string): Promise<void> {
  const dir = resolve(target);
  if (`${realPath(dir)}${sep}`.startsWith(`${realPath(resolve(storeDir))}${sep}`)) {
    throw new CommandError('failure', `${target} is in the store`, 'name a new directory outside of it');
  }
  return runWriteCommand(storeDir, { command: 'backup', dir });
}

/** Also of what is not there yet. */
function realPath(path: string): string {
  return existsSync(path) ? realpathSync(path) : join(realPath(dirname(path)), basename(path));
}
