/** The store's data file, seen from outside of LMDB. */
import { closeSync, existsSync, fsyncSync, lstatSync, openSync, readSync, type Stats, statSync } from 'node:fs';
import { join } from 'node:path';
import { StoreOpenError } from './store-error.ts';

const MAGIC = 0xbeefc0de;
const MAGIC_AT = 24;
/** The two meta pages. */
const SMALLEST_BYTES = 8192;

export function dataFile(dir: string): string {
  return join(dir, 'data.mdb');
}

/**
 * Is there a data file? One that does not begin as LMDB's is refused here: LMDB would die of it on a signal.
 * @throws StoreOpenError `damaged`
 */
export function checkDataFile(dir: string): boolean {
  const path = dataFile(dir);
  const found = lstatSync(path, { throwIfNoEntry: false });
  // A ballast is written to a store that is one already.
  if (found?.size === 0 && existsSync(join(dir, 'ballast'))) {
    throw new StoreOpenError('damaged', `${path} is empty, and was not`);
  }
  if (!found || found.size === 0) return false;
  if (!found.isFile()) throw new StoreOpenError('damaged', `${path} is not a file`);
  const head = Buffer.alloc(MAGIC_AT + 4);
  const fd = openSync(path, 'r');
  try {
    readSync(fd, head, 0, head.length, 0);
  } finally {
    closeSync(fd);
  }
  const magic = [head.readUInt32LE(MAGIC_AT), head.readUInt32BE(MAGIC_AT)];
  if (found.size < SMALLEST_BYTES || !magic.includes(MAGIC)) {
    throw new StoreOpenError('damaged', `${path} is not an LMDB file or is cut off`);
  }
  return true;
}

/** Why the file at the path is not the one that was opened: writing on would succeed and be lost. */
export function dataFileLost(path: string, opened: Stats): string | undefined {
  const now = statSync(path, { throwIfNoEntry: false });
  if (now?.ino === opened.ino && now.dev === opened.dev) return undefined;
  return `${path} ${now ? 'is another file now' : 'is gone'}`;
}

/** Makes new names in a directory outlive a power loss. */
export function syncDirectory(dir: string): void {
  const fd = openSync(dir, 'r');
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}
