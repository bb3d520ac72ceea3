/** The directory of the cached histories: one file a session, named by the session's number. */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { HistoryFile, type HistoryIdentity } from './history-file.ts';
import { FileMedium, type Medium } from './history-medium.ts';

/** New at each start of the operating system; where there is none, a cache lives as long as its process. */
const BOOT_ID_FILE = '/proc/sys/kernel/random/boot_id';

/** `<store>/cache`. */
export function cacheDir(storeDir: string): string {
  return join(storeDir, 'cache');
}

export function historyPath(dir: string, num: number): string {
  return join(dir, `${num}.history`);
}

/**
 * Makes the directory. What an earlier start of the operating system left is removed: its files were never flushed.
 * False when there can be no directory.
 */
export function prepareCacheDir(dir: string): boolean {
  const mark = join(dir, 'boot-id');
  const now = bootId();
  try {
    if (now !== undefined && readOr(mark) === now) return true;
    rmSync(dir, { recursive: true, force: true });
    mkdirSync(dir, { mode: 0o700 });
    if (now !== undefined) writeFileSync(mark, now, { mode: 0o600 });
    return true;
  } catch {
    return false;
  }
}

/** The history at a path, when it is whole and of this identity. */
export function openFile(path: string, identity: HistoryIdentity, readOnly = false): HistoryFile | undefined {
  let medium: Medium | undefined;
  try {
    medium = FileMedium.open(path, readOnly);
    const file = HistoryFile.load(medium, identity);
    if (file) return file;
  } catch {
    // Not there, or not readable: the same as a wrong one.
  }
  medium?.close();
  return undefined;
}

/** A new file, also when the directory has been taken away; undefined when that cannot be. */
export function createFile(dir: string, path: string): Medium | undefined {
  try {
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    return FileMedium.create(path);
  } catch {
    return undefined;
  }
}

function bootId(): string | undefined {
  return readOr(BOOT_ID_FILE)?.trim();
}

function readOr(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}
