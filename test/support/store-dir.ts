import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A directory for one test; `remove` when it is over. */
export function storeDir(parent = tmpdir()): { readonly path: string; remove(): void } {
  const path = mkdtempSync(join(parent, 'acp-store-'));
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}
