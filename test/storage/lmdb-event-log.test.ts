import {
  copyFileSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { open } from 'lmdb';
import { describe, expect, it } from 'vitest';
import type { CommitBatch, EventLog } from '../../storage/event-log.ts';
import { FORMAT_VERSION } from '../../storage/format-version.ts';
import { openLmdbEventLog, openLmdbEventLogReadOnly } from '../../storage/lmdb-event-log.ts';
import { StoreOpenError } from '../../storage/store-error.ts';
import { eventLogContract } from '../contract/event-log.contract.ts';
import { testScope } from '../support/scope.ts';
import { sessionRow } from '../support/session-row.ts';
import { startStoreProcess } from '../support/store-process.ts';
import { tempDir } from '../support/temp-dir.ts';
import { waitFor } from '../support/wait-for.ts';

eventLogContract('lmdb', () => {
  const dir = tempDir(testScope());
  return { open: () => openLmdbEventLog(dir), durable: true };
});

function batch(firstSeq: number, ...texts: string[]): CommitBatch {
  return { appends: [{ num: 1, firstSeq, records: texts.map((text) => Buffer.from(text)) }], rows: [sessionRow(1)] };
}

function read(log: EventLog): string[] {
  const seen: string[] = [];
  log.scan(1, 1, Number.MAX_SAFE_INTEGER, (_seq, record, length) => seen.push(record.latin1Slice(0, length)) > 0);
  return seen;
}

async function failure(opening: Promise<EventLog>): Promise<StoreOpenError> {
  const error: unknown = await opening.then(
    (log) => log.close(),
    (reason: unknown) => reason,
  );
  if (!(error instanceof StoreOpenError)) throw new Error('it opened, or failed in another way', { cause: error });
  return error;
}

describe('opening an LMDB store', () => {
  it('that another process has fails and names its pid', async () => {
    const scope = testScope();
    const dir = tempDir(scope);
    const owner = startStoreProcess(scope, ['append', dir]);
    await owner.first();
    const error = await failure(openLmdbEventLog(dir));
    expect([error.kind, error.pid]).toEqual(['held', owner.child.pid]);
  });

  it('twice in one process fails too, and works again after close', async () => {
    const dir = tempDir(testScope());
    const log = await openLmdbEventLog(dir);
    expect((await failure(openLmdbEventLog(dir))).pid).toBe(process.pid);
    await log.close();
    await (await openLmdbEventLog(dir)).close();
  });

  it('of a newer version is refused, for a reader too, and leaves it as it is', async () => {
    const dir = tempDir(testScope());
    await (await openLmdbEventLog(dir)).close();
    const root = open<Buffer, Buffer>({
      path: dir,
      noSubdir: false,
      encoding: 'binary',
      keyEncoding: 'binary',
      overlappingSync: false,
    });
    const meta = root.openDB<Buffer, Buffer>('meta', { encoding: 'binary', keyEncoding: 'binary' });
    meta.putSync(Buffer.from('format'), Buffer.from(String(FORMAT_VERSION + 1)));
    await root.close();
    const before = readFileSync(join(dir, 'data.mdb'));
    expect((await failure(openLmdbEventLog(dir))).kind).toBe('newer');
    expect((await failure(openLmdbEventLogReadOnly(dir))).kind).toBe('newer');
    expect(readFileSync(join(dir, 'data.mdb')).equals(before)).toBe(true);
    // The lock is free again.
    expect((await failure(openLmdbEventLog(dir))).kind).toBe('newer');
  });

  it('that is no LMDB file fails instead of dying on a signal', async () => {
    const dir = tempDir(testScope());
    for (const bytes of [Buffer.from('not a store'), Buffer.alloc(16384, 7)]) {
      writeFileSync(join(dir, 'data.mdb'), bytes);
      expect((await failure(openLmdbEventLog(dir))).kind).toBe('damaged');
      expect((await failure(openLmdbEventLogReadOnly(dir))).kind).toBe('damaged');
    }
  });

  it('without room on the disk fails before LMDB is asked', async () => {
    const dir = tempDir(testScope());
    const error = await failure(openLmdbEventLog(dir, { minFreeBytes: 2 ** 60 }));
    expect(error.kind).toBe('no_space');
    expect(readdirSync(dir)).toEqual([]);
  });

  it('makes files for its owner only, and does not follow a link', async () => {
    const dir = tempDir(testScope());
    const store = join(dir, 'my.store');
    const log = await openLmdbEventLog(store);
    await log.commit(batch(1, 'a'));
    const modes = readdirSync(store).map((name) => [name, statSync(join(store, name)).mode & 0o777]);
    expect(modes.filter(([, mode]) => mode !== 0o600)).toEqual([]);
    expect(statSync(store).mode & 0o777).toBe(0o700);
    await log.close();
    symlinkSync(store, join(dir, 'link'));
    expect((await failure(openLmdbEventLog(join(dir, 'link')))).kind).toBe('unsafe_path');
  });
});

describe('reading a store that a server has', () => {
  it('sees what is committed and changes nothing', async () => {
    const dir = tempDir(testScope());
    const log = await openLmdbEventLog(dir);
    await log.commit(batch(1, 'a', 'b'));
    const path = join(dir, 'data.mdb');
    const before = { bytes: readFileSync(path), mtime: statSync(path).mtimeMs };
    const names = readdirSync(dir);
    const reader = await openLmdbEventLogReadOnly(dir);
    expect(reader.storeId).toBe(log.storeId);
    expect([...reader.rows()]).toEqual([sessionRow(1)]);
    expect(read(reader)).toEqual(['a', 'b']);
    expect(() => reader.commit(batch(3, 'x'))).toThrow(/for reading/);
    expect(readFileSync(path).equals(before.bytes)).toBe(true);
    expect(statSync(path).mtimeMs).toBe(before.mtime);
    await log.commit(batch(3, 'c'));
    await waitFor('the reader to see the new event', () => reader.lastSeq(1) === 3);
    expect(read(reader)).toEqual(['a', 'b', 'c']);
    await reader.close();
    expect(readdirSync(dir)).toEqual(names);
    expect(await log.commit(batch(4, 'd'))).toEqual({ outcome: 'committed' });
    await log.close();
  });

  it('fails when there is none, and makes none', async () => {
    const dir = tempDir(testScope());
    expect((await failure(openLmdbEventLogReadOnly(dir))).kind).toBe('missing');
    expect((await failure(openLmdbEventLogReadOnly(join(dir, 'nothing')))).kind).toBe('missing');
    expect(readdirSync(dir)).toEqual([]);
  });
});

describe('a store that is not ours any more', () => {
  it('is not written when another file is at its path, or none', async () => {
    for (const change of ['replaced', 'removed']) {
      const dir = tempDir(testScope());
      const log = await openLmdbEventLog(dir);
      await log.commit(batch(1, 'a'));
      const path = join(dir, 'data.mdb');
      copyFileSync(path, `${path}.copy`);
      rmSync(path);
      if (change === 'replaced') renameSync(`${path}.copy`, path);
      expect((await log.commit(batch(2, 'b'))).outcome).toBe('unknown');
      // Nor later, when it looks right again.
      expect((await log.commit(batch(2, 'b'))).outcome).toBe('unknown');
      expect(read(log)).toEqual(['a']);
      await log.close();
    }
  });

  it('is not written when the owner record names somebody else', async () => {
    const dir = tempDir(testScope());
    const log = await openLmdbEventLog(dir);
    writeFileSync(join(dir, 'owner.json'), JSON.stringify({ pid: 1, token: 'another' }));
    const outcome = await log.commit(batch(1, 'a'));
    expect(outcome).toEqual({ outcome: 'unknown', message: expect.stringContaining('another owner') });
    await log.close();
  });
});
