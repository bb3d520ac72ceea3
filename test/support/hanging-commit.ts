/**
 * Commits that do not settle, built into a copy of the sidecar below its time limit.
 *
 *   STORE_HANG_FILE   while this file exists no commit settles: it holds `written` or `unwritten`, what became of them
 */
import { existsSync, readFileSync } from 'node:fs';

export const HANGS = ['unwritten', 'written'] as const;

export function hanging(write: () => Promise<boolean>): Promise<boolean> {
  const file = process.env['STORE_HANG_FILE'] ?? '';
  if (!existsSync(file)) return write();
  if (readFileSync(file, 'utf8') === 'written') void write();
  return new Promise(() => undefined);
}
