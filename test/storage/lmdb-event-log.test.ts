import {
  copyFileSync,
  cpSync,
  existsSync,
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
import { decodeRecord } from '../../storage/event-codec.ts';
import type { CommitBatch, EventLog, RecordVisitor } from '../../storage/event-log.ts';
import { FORMAT_VERSION } from '../../storage/format-version.ts';
import { openLmdbEventLog, openLmdbEventLogReadOnly } from '../../storage/lmdb-event-log.ts';
import { isDamage, StoreOpenError, unusable } from '../../storage/store-error.ts';
import { eventLogContract } from '../contract/event-log.contract.ts';
import { testScope } from '../support/scope.ts';
import { sessionRow } from '../support/session-row.ts';
import { startStoreProcess } from '../support/store-process.ts';
import { tempDir } from '../support/temp-dir.ts';
import { waitFor } from '../support/wait-for.ts';
import { storeAtRest } from '../support/store-at-rest.ts';

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

/** Is it the record that the store process writes there? */
function isRight(num: number): RecordVisitor {
  return (seq, record, length) => {
    const event = decodeRecord(record, length, seq);
    if ('unreadable' in event) throw new Error(`event ${seq}: ${event.detail}`);
    if (!event.payload.startsWith(`{"num":${num},"seq":${seq},`)) throw new Error(`${seq}: ${event.payload}`);
    return true;
  };
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

  it('whose file became empty is not begun anew', async () => {
    const dir = tempDir(testScope());
    const log = await openLmdbEventLog(dir, { ballastBytes: 4096 });
    await waitFor('the ballast', () => existsSync(join(dir, 'ballast')));
    await log.close();
    writeFileSync(join(dir, 'data.mdb'), '');
    expect((await failure(openLmdbEventLog(dir))).kind).toBe('damaged');
    expect((await failure(openLmdbEventLogReadOnly(dir))).kind).toBe('damaged');
  });

  it('in which LMDB finds pages that cannot be is damaged', () => {
    const found = unusable('the store x', new Error('MDB_PAGE_NOTFOUND: Requested page not found'));
    expect(found).toMatchObject({ kind: 'damaged', message: expect.stringContaining('the store x is damaged') });
    expect(isDamage(new Error('MDB_MAP_FULL: Environment mapsize limit reached'))).toBe(false);
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
    await storeAtRest(store);
    const modes = readdirSync(store).map((name) => [name, statSync(join(store, name)).mode & 0o777]);
    expect(modes.filter(([, mode]) => mode !== 0o600)).toEqual([]);
    expect(statSync(store).mode & 0o777).toBe(0o700);
    await log.close();
    symlinkSync(store, join(dir, 'link'));
    expect((await failure(openLmdbEventLog(join(dir, 'link')))).kind).toBe('unsafe_path');
  });
});

describe('reading a store that a server has', () => {
  it('sees what is committed when it opens it, and changes nothing', async () => {
    const scope = testScope();
    const dir = tempDir(scope);
    // In another process: two environments of one process would be one and the same.
    const writer = startStoreProcess(scope, ['append', dir, '2', '5']);
    await waitFor('five rounds of two sessions', () => writer.lines.length === 1 + 10);
    await waitFor('the ballast', () => existsSync(join(dir, 'ballast')));
    const head = (writer.lines.at(-1) as [number, number])[1];
    const path = join(dir, 'data.mdb');
    const before = { bytes: readFileSync(path), mtime: statSync(path).mtimeMs };
    const names = readdirSync(dir);

    const reader = await openLmdbEventLogReadOnly(dir);
    expect([...reader.rows()].map((row) => row.sessionId)).toEqual(['session-1', 'session-2']);
    expect(reader.lastSeq(2)).toBe(head);
    let seen = 0;
    expect(reader.scan(2, 1, head, () => ++seen > 0)).toEqual({ outcome: 'end' });
    expect(seen).toBe(head);
    await reader.prefetch(2, 1, head);
    expect(() => reader.commit(batch(3, 'x'))).toThrow(/for reading/);
    expect(readFileSync(path).equals(before.bytes)).toBe(true);
    expect(statSync(path).mtimeMs).toBe(before.mtime);

    writer.child.stdin?.write('x');
    await waitFor('the writer to go on', () => writer.lines.length === 1 + 12);
    expect(reader.lastSeq(2)).toBe(head);
    await reader.close();
    const later = await openLmdbEventLogReadOnly(dir);
    expect(later.lastSeq(2)).toBe((writer.lines.at(-1) as [number, number])[1]);
    await later.close();
    expect(readdirSync(dir)).toEqual(names);
  });

  it('takes nothing from the writer, however often it is opened while that one commits', {
    timeout: 60_000,
  }, async () => {
    const dir = tempDir(testScope());
    const writer = startStoreProcess(testScope(), ['append', dir, '2']);
    await writer.first();
    for (let n = 0; n < 800; n++) await (await openLmdbEventLogReadOnly(dir)).close();
    await writer.kill();
    const log = await openLmdbEventLog(dir);
    for (const num of [1, 2]) {
      const told = writer.lines.slice(1).filter((line) => (line as [number, number])[0] === num) as [number, number][];
      expect(log.lastSeq(num)).toBeGreaterThanOrEqual(told.at(-1)?.[1] ?? Number.NaN);
      expect(log.scan(num, 1, log.lastSeq(num), isRight(num))).toEqual({ outcome: 'end' });
    }
    await log.close();
  });

  it('reads what it found, however much is written meanwhile', async () => {
    const scope = testScope();
    const dir = tempDir(scope);
    const writer = startStoreProcess(scope, ['append', dir, '2']);
    await waitFor('some rounds', () => writer.lines.length > 200);
    const reader = await openLmdbEventLogReadOnly(dir);
    const head = reader.lastSeq(2);
    const told = writer.lines.length;
    await waitFor('many more', () => writer.lines.length > told + 600);
    expect(reader.lastSeq(2)).toBe(head);
    expect(reader.scan(2, 1, head, isRight(2))).toEqual({ outcome: 'end' });
    await reader.close();
  });

  it('is refused to a seventeenth process, until one of the others ends', async () => {
    const dir = tempDir(testScope());
    const writer = startStoreProcess(testScope(), ['append', dir, '1', '3']);
    await waitFor('three rounds', () => writer.lines.length === 1 + 3);
    const readers: EventLog[] = [];
    for (let n = 0; n < 16; n++) readers.push(await openLmdbEventLogReadOnly(dir));
    expect((await failure(openLmdbEventLogReadOnly(dir))).kind).toBe('busy');
    await readers.pop()?.close();
    let again: EventLog | undefined;
    await waitFor('the place to be free', async () => {
      again = await openLmdbEventLogReadOnly(dir).catch(() => undefined);
      return again !== undefined;
    });
    for (const reader of [...readers, again]) await reader?.close();
  });

  it('fails when there is none, and makes none', async () => {
    const dir = tempDir(testScope());
    expect((await failure(openLmdbEventLogReadOnly(dir))).kind).toBe('missing');
    expect((await failure(openLmdbEventLogReadOnly(join(dir, 'nothing')))).kind).toBe('missing');
    expect(readdirSync(dir)).toEqual([]);
  });
});

describe('a store that was copied', () => {
  it('gets new log ids once, so that cursors of the original do not open it; one that was moved keeps them', async () => {
    const dir = tempDir(testScope());
    const [first, moved, copied] = ['first', 'moved', 'copied'].map((name) => join(dir, name)) as [
      string,
      string,
      string,
    ];
    const log = await openLmdbEventLog(first);
    await log.commit(batch(1, 'a'));
    await log.close();
    const logIdIn = async (path: string): Promise<string | undefined> => {
      const opened = await openLmdbEventLog(path);
      const row = opened.row('session-1');
      expect(read(opened)).toEqual(['a']);
      await opened.close();
      return row?.logId;
    };
    renameSync(first, moved);
    expect(await logIdIn(moved)).toBe('log1');
    cpSync(moved, copied, { recursive: true });
    const renewed = await logIdIn(copied);
    expect(renewed).toMatch(/^[0-9a-f]{12}$/);
    expect(await logIdIn(copied)).toBe(renewed);
    expect(await logIdIn(moved)).toBe('log1');
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
