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
        'log = await openLmdbEventLog(config.storeDir);',
        `log = (await import(${faults})).withFaults(await openLmdbEventLog(config.storeDir));`,
      ],
    ],
  });
  return built;
}
