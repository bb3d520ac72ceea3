/** `acp-sidecar export ID`: a session as one file of JSON lines. Also beside a running server. */
import { once } from 'node:events';
import { createWriteStream, existsSync, realpathSync, statSync } from 'node:fs';
import { rename, rm } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { exportSession } from '../../storage/export.ts';
import { CommandError } from './exit-code.ts';
import { requireSession, withStore } from './read-store.ts';

export async function exportToFile(storeDir: string, sessionId: string, file: string | undefined): Promise<void> {
  await withStore(storeDir, async (log) => {
    const row = requireSession(log, sessionId);
    const toStdout = file === undefined || file === '-';
    const place = toStdout ? undefined : placeOf(file);
    // A file that is there is replaced only by a whole one; a device or a pipe is written to.
    const unfinished = place?.replaced ? `${place.path}.${process.pid}.unfinished` : (place?.path ?? '');
    const out: NodeJS.WritableStream = toStdout ? process.stdout : createWriteStream(unfinished, { mode: 0o600 });
    const failed = new Promise<never>((_resolve, reject) => {
      if (!toStdout) out.on('error', reject);
    });
    failed.catch(() => undefined);
    try {
      const outcome = await exportSession(log, row, Date.now(), async (wire) => {
        if (!out.write(wire, 'latin1')) await Promise.race([once(out, 'drain'), failed]);
      });
      if (outcome.outcome === 'damaged') {
        throw new CommandError(
          'store_failed',
          `session ${JSON.stringify(sessionId)}: event ${outcome.seq} cannot be read: ${outcome.detail}`,
          'restore the store from a backup',
        );
      }
      if (toStdout) await new Promise<void>((resolve) => process.stdout.write('', () => resolve()));
      else {
        await Promise.race([new Promise<void>((resolve) => out.end(resolve)), failed]);
        if (place?.replaced) await rename(unfinished, place.path);
      }
    } catch (error) {
      if (place?.replaced) await rm(unfinished, { force: true });
      if (error instanceof Error && 'code' in error) throw new CommandError('failure', error.message);
      throw error;
    }
  });
}

/** Where an export to a file goes. @throws CommandError when it is a directory, or in none */
function placeOf(file: string): { readonly path: string; readonly replaced: boolean } {
  const found = statSync(file, { throwIfNoEntry: false });
  if (found?.isDirectory()) {
    throw new CommandError('failure', `${file} is a directory`, 'name a file in it');
  }
  // Through a symbolic link, so that the link stays.
  if (found) return { path: realpathSync(file), replaced: found.isFile() };
  const dir = dirname(resolve(file));
  if (!existsSync(dir)) throw new CommandError('failure', `there is no directory ${dir}`, 'make it first');
  return { path: file, replaced: true };
}
