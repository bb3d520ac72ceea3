/** A chain of migrations on real tables, with a crash between its steps. */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { open } from 'lmdb';
import { expect, it } from 'vitest';
import { openLmdbEventLog } from '../../storage/lmdb-event-log.ts';
import { type FormatChain, META, prepareStore, readJson, type Tables } from '../../storage/store-meta.ts';
import { testScope } from '../support/scope.ts';
import { sessionRow } from '../support/session-row.ts';
import { tempDir } from '../support/temp-dir.ts';
import { textEvent, write } from '../support/written-log.ts';

async function storeOfFormat1(): Promise<{ dir: string; tables: Tables }> {
  const scope = testScope();
  const dir = join(tempDir(scope), 'store');
  mkdirSync(dir);
  const log = await openLmdbEventLog(dir, { minFreeBytes: 0, ballastBytes: 1024 });
  await write(log, sessionRow(1), [textEvent('x')]);
  await log.close();
  const root = open<Buffer, Buffer>({
    path: dir,
    noSubdir: false,
    encoding: 'binary',
    keyEncoding: 'binary',
    overlappingSync: false,
    eventTurnBatching: false,
  });
  const table = (name: string): Tables['meta'] =>
    root.openDB<Buffer, Buffer>(name, { encoding: 'binary', keyEncoding: 'binary' });
  scope.defer(() => root.close());
  return { dir, tables: { root, events: table('events'), sessions: table('sessions'), meta: table('meta') } };
}

const KEY = Buffer.from('steps');

/** Each step adds its number; step 3 fails as often as it is told. */
function chainTo(target: number, failures = { left: 0 }): FormatChain {
  const steps = [1, 2, 3].map((from) => ({
    from,
    run: ({ meta }: Tables): void => {
      if (from === 3 && failures.left-- > 0) throw new Error('crash');
      const done = (readJson(meta, KEY) as number[] | undefined) ?? [];
      void meta.put(KEY, Buffer.from(JSON.stringify([...done, from])));
    },
  }));
  return { steps, target };
}

it('migrations run in order, once each, and the version goes with each', async () => {
  const { dir, tables } = await storeOfFormat1();
  const id = await prepareStore(tables, dir, 0, chainTo(4));
  expect(readJson(tables.meta, KEY)).toEqual([1, 2, 3]);
  expect(readJson(tables.meta, META.format)).toBe(4);
  expect(await prepareStore(tables, dir, 0, chainTo(4))).toBe(id);
  expect(readJson(tables.meta, KEY)).toEqual([1, 2, 3]);
});

it('a migration that was cut off goes on where it was, and the store of a later version is refused by an earlier', async () => {
  const { dir, tables } = await storeOfFormat1();
  const failures = { left: 1 };
  await expect(prepareStore(tables, dir, 0, chainTo(4, failures))).rejects.toThrow('crash');
  expect(readJson(tables.meta, META.format)).toBe(3);
  await prepareStore(tables, dir, 0, chainTo(4, failures));
  expect(readJson(tables.meta, KEY)).toEqual([1, 2, 3]);
  await expect(prepareStore(tables, dir, 0, chainTo(3))).rejects.toMatchObject({ kind: 'newer' });
  await expect(prepareStore(tables, dir, 0, { steps: [], target: 9 })).rejects.toMatchObject({ kind: 'damaged' });
});
