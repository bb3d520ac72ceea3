/** `acp-sidecar stop`: has the server of a store end in good order, and waits until it has. */
import { askServer } from '../control/control-client.ts';
import { storeOwner } from '../../storage/store-lock.ts';
import { exitCode } from './exit-code.ts';
import { flushed, printText } from './read-store.ts';
import { runStores, statusOf } from './status.ts';

const LOOK_MS = 50;

/** Resolves to the exit code: 1 when there is no server. */
export async function stopServer(storeDir: string): Promise<number> {
  const there = await askServer(storeDir, { command: 'stop' }, () => undefined);
  if (!there) {
    printText(`no sidecar runs on ${storeDir}`);
    for (const answer of await statusOf(runStores(storeDir))) {
      printText(`one runs on --store ${String((JSON.parse(answer) as { store?: unknown }).store)}`);
    }
    await flushed();
    return exitCode('failure');
  }
  while ((await storeOwner(storeDir)) !== undefined) await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  return exitCode('ok');
}
