/** A copy of a store in a new directory; a store of its own. */
import { chmodSync, closeSync, existsSync, fsyncSync, openSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { dirname } from 'node:path';
import { dataFile, syncDirectory } from './data-file.ts';
import type { LmdbStore } from './lmdb-event-log.ts';
import { makeDirectories } from './store-lock.ts';

export type BackupOutcome = { readonly outcome: 'written' } | { readonly outcome: 'refused'; readonly message: string };

/** @param dir must not exist, or be empty. Appears there when it is whole and durable. */
export async function backupStore(log: LmdbStore, dir: string): Promise<BackupOutcome> {
  const unfinished = `${dir}.${process.pid}.unfinished`;
  try {
    if (existsSync(dir) && readdirSync(dir).length > 0) return { outcome: 'refused', message: `${dir} is not empty` };
    rmSync(unfinished, { recursive: true, force: true });
    makeDirectories(unfinished);
  } catch (error) {
    return { outcome: 'refused', message: `${dir} cannot be made: ${(error as Error).message}` };
  }
  try {
    await log.backup(unfinished);
    chmodSync(dataFile(unfinished), 0o600);
    const fd = openSync(dataFile(unfinished), 'r');
    fsyncSync(fd);
    closeSync(fd);
    syncDirectory(unfinished);
    renameSync(unfinished, dir);
    syncDirectory(dirname(dir));
    return { outcome: 'written' };
  } catch (error) {
    rmSync(unfinished, { recursive: true, force: true });
    throw error;
  }
}
