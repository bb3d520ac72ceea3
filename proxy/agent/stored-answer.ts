/**
 * The agent's last answer to `initialize`, kept beside the log so that a client of a later start is answered at once.
 * It belongs to one agent command; a damaged or foreign file counts as none.
 */
import { createHash } from 'node:crypto';
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const FILE = 'agent-initialize.json';

function digestOf(command: readonly string[]): string {
  return createHash('sha256').update(command.join('\0')).digest('hex');
}

/** Wire text of the result, or undefined. */
export function readStoredAnswer(storeDir: string, command: readonly string[]): string | undefined {
  try {
    const stored = JSON.parse(readFileSync(join(storeDir, FILE), 'utf8')) as { command?: unknown; result?: unknown };
    if (stored.command !== digestOf(command) || typeof stored.result !== 'string') return undefined;
    JSON.parse(stored.result);
    return Buffer.from(stored.result, 'utf8').latin1Slice();
  } catch {
    return undefined;
  }
}

/** @throws Error of the file system */
export function writeStoredAnswer(storeDir: string, command: readonly string[], result: string): void {
  const text = Buffer.from(result, 'latin1').toString('utf8');
  const temporary = join(storeDir, `${FILE}.new`);
  writeFileSync(temporary, JSON.stringify({ command: digestOf(command), result: text }), { mode: 0o600 });
  renameSync(temporary, join(storeDir, FILE));
}
