import { join } from 'node:path';
import { buildWithFault } from './faulty-build.ts';
import { ROOT } from './scripted-agent.ts';

let built: Promise<string> | undefined;

/** A sidecar whose store obeys `store-faults.ts`: its program's path. */
export function faultyStoreProgram(): Promise<string> {
  const faults = JSON.stringify(join(ROOT, 'test/support/store-faults.ts'));
  built ??= buildWithFault({
    name: 'store',
    file: 'proxy/server.ts',
    replace: [
      [
        'log = await openLmdbEventLog(config.storeDir, { onLowSpace });',
        `log = (await import(${faults})).withFaults(await openLmdbEventLog(config.storeDir, { onLowSpace }));`,
      ],
    ],
  });
  return built;
}

let hanging: Promise<string> | undefined;

/** A sidecar whose commits obey `hanging-commit.ts` and must settle in a second: its program's path. */
export function hangingStoreProgram(): Promise<string> {
  const from = JSON.stringify(join(ROOT, 'test/support/hanging-commit.ts'));
  hanging ??= buildWithFault({
    name: 'hanging store',
    file: 'storage/lmdb-event-log.ts',
    replace: [
      ['const COMMIT_TIMEOUT_MS = 30_000;', `import { hanging } from ${from};\nconst COMMIT_TIMEOUT_MS = 1000;`],
      ['failStop.run(write, ', 'failStop.run(() => hanging(write), '],
    ],
  });
  return hanging;
}
