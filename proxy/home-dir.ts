/** Where the user's own things are. */
import { homedir } from 'node:os';
import { isAbsolute, join } from 'node:path';
import { CommandError } from './cli/exit-code.ts';

/** @throws CommandError (usage) when HOME is empty or relative: what lies below it would be found by nobody again */
export function homeDir(): string {
  const dir = homedir();
  if (isAbsolute(dir)) return dir;
  throw new CommandError('usage', `HOME is ${JSON.stringify(dir)}, which is not an absolute path`);
}

/** The store when none is named. A relative XDG_STATE_HOME does not count, as its specification says. */
export function defaultStoreDir(): string {
  const state = process.env['XDG_STATE_HOME'] ?? '';
  return join(isAbsolute(state) ? state : join(homeDir(), '.local', 'state'), 'acp-sidecar');
}
