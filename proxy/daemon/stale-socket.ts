/** A socket file that a killed process left behind. */
import { lstatSync, rmSync } from 'node:fs';
import { connect } from 'node:net';

/** Removes the socket file when nobody answers on it. Call it under a lock: who binds it next may be somebody else. */
export async function unlinkStaleSocket(path: string): Promise<void> {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (!found?.isSocket()) return;
  const refused = await new Promise<boolean>((resolve) => {
    const probe = connect(path);
    probe.on('connect', () => {
      probe.destroy();
      resolve(false);
    });
    probe.on('error', (error: NodeJS.ErrnoException) => resolve(error.code === 'ECONNREFUSED'));
  });
  if (refused) rmSync(path, { force: true });
}
