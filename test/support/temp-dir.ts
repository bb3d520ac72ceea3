import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Scope } from './scope.ts';

/** A new empty directory, removed when the scope ends. The path is short: Unix socket paths end at 107 bytes. */
export function tempDir(scope: Scope): string {
  const path = mkdtempSync(join(tmpdir(), 'acp-'));
  // A process that is just ending may still make a file in it.
  scope.defer(() => rmSync(path, { recursive: true, force: true, maxRetries: 20, retryDelay: 20 }));
  return path;
}
