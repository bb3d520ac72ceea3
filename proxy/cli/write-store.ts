/** What the commands that write share: the running server does it, or this process has the store for itself. */
import { existsSync } from 'node:fs';
import { dataFile } from '../../storage/data-file.ts';
import { GroupCommit } from '../../storage/group-commit.ts';
import { HistoryCache } from '../../storage/history-cache.ts';
import { cacheDir } from '../../storage/history-dir.ts';
import { openLmdbEventLog } from '../../storage/lmdb-event-log.ts';
import { askServer } from '../control/control-client.ts';
import type { ControlRequest } from '../control/control-protocol.ts';
import { runStoreCommand } from '../control/store-commands.ts';
import { CommandError } from './exit-code.ts';
import { flushed, printWire, storeErrorOf } from './read-store.ts';

/** @throws CommandError */
export async function runWriteCommand(storeDir: string, request: ControlRequest): Promise<void> {
  const print = (line: string): void => printWire(Buffer.from(line, 'utf8').toString('latin1'));
  try {
    if (!(await askServer(storeDir, request, print))) await runAlone(storeDir, request, print);
  } finally {
    await flushed();
  }
}

async function runAlone(storeDir: string, request: ControlRequest, print: (line: string) => void): Promise<void> {
  if (request.command !== 'import' && !existsSync(dataFile(storeDir))) {
    throw new CommandError('failure', `${storeDir} has no store`, '--store DIR names another');
  }
  let log: Awaited<ReturnType<typeof openLmdbEventLog>>;
  try {
    log = await openLmdbEventLog(storeDir);
  } catch (error) {
    throw storeErrorOf(error);
  }
  const commit = new GroupCommit(log, { onFailed: () => undefined });
  const history = new HistoryCache(log, cacheDir(storeDir));
  try {
    await runStoreCommand({ log, commit, history, now: Date.now }, request, print);
  } finally {
    await commit.idle();
    history.close();
    await log.close();
  }
}
