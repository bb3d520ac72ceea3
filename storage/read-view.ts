/**
 * Reading a store that another process may be writing. LMDB (as `lmdb` 3.5.6 has it) lets every process that opens a
 * store write the number of the last transaction that it found into the lock file, also one that only reads, also when
 * the writer has gone on since. The writer goes by that number: it would begin again at an older state, and what it had
 * committed since is lost. So a reader never touches the store's lock file. It opens the data file through a link in a
 * directory of its own, where LMDB makes another lock file, and asks the owner to keep the pages that it reads
 * (`page-holds.ts`).
 */
import { mkdtempSync, realpathSync, rmSync, symlinkSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { dataFile } from './data-file.ts';
import { BUSY, HELD, HOLD } from './page-holds.ts';
import { StoreOpenError } from './store-error.ts';
import { ownerSocket } from './store-lock.ts';

const ANSWER_MS = 5000;
const BEAT_MS = 5000;

/** A directory that LMDB can open; `remove` it once that is done. */
export function linkedStore(dir: string): { readonly path: string; remove(): void } {
  const path = mkdtempSync(join(tmpdir(), 'acp-sidecar-read-'));
  try {
    symlinkSync(realpathSync(dataFile(dir)), dataFile(path));
  } catch (error) {
    rmSync(path, { recursive: true, force: true });
    throw error;
  }
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}

/**
 * Asks the process that has the store to keep the pages of this moment until the result is called. When nobody has it, or
 * its owner stands still, nothing has to be held.
 * @throws StoreOpenError `busy`
 */
export async function holdPages(dir: string): Promise<() => void> {
  const place = ownerSocket(dir);
  if (!place) return () => undefined;
  const socket = connect(place.path);
  let beat: NodeJS.Timeout | undefined;
  let told = '';
  await new Promise<void>((resolve) => {
    socket.setTimeout(ANSWER_MS, () => socket.destroy());
    socket.on('error', () => undefined);
    socket.on('close', () => {
      clearInterval(beat);
      resolve();
    });
    socket.on('connect', () => socket.write(HOLD));
    socket.on('data', (bytes) => {
      told += bytes.toString('latin1');
      if (!told.endsWith(HELD) || beat) return;
      socket.setTimeout(0);
      beat = setInterval(() => socket.write('.'), BEAT_MS).unref();
      socket.unref();
      resolve();
    });
  });
  place.close();
  if (told.endsWith(BUSY)) throw new StoreOpenError('busy', `too many other processes read ${dir}`);
  return () => socket.destroy();
}
