import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { open } from 'lmdb';
import { encodeRecord } from '../../storage/event-codec.ts';
import type { EventLog } from '../../storage/event-log.ts';
import { backupStore } from '../../storage/backup.ts';
import { HistoryCache } from '../../storage/history-cache.ts';
import { cacheDir, historyPath } from '../../storage/history-dir.ts';
import { eventKey, sessionKey } from '../../storage/log-keys.ts';
import { openLmdbEventLog, openLmdbEventLogReadOnly } from '../../storage/lmdb-event-log.ts';
import { META } from '../../storage/store-meta.ts';
import { type Finding, verifyStore } from '../../storage/verify.ts';
import { testScope } from '../support/scope.ts';
import { sessionRow } from '../support/session-row.ts';
import { tempDir } from '../support/temp-dir.ts';
import { promptEvent, textEvent, turnEnd, write } from '../support/written-log.ts';

const SMALL = { minFreeBytes: 0, ballastBytes: 1024 };
const ROWS = [1, 2, 3].map((num) => sessionRow(num));

async function store(): Promise<string> {
  const dir = join(tempDir(testScope()), 'store');
  const log = await openLmdbEventLog(dir, SMALL);
  const cache = new HistoryCache(log, cacheDir(dir));
  for (const row of ROWS) {
    const created = { type: 'session_created', required: true, payload: '{}' } as const;
    await write(log, row, [
      created,
      promptEvent('t1', 'question'),
      textEvent('answer'),
      turnEnd('t1'),
      promptEvent('t2', 'more'),
    ]);
    await cache.page(row);
  }
  cache.close();
  await log.close();
  return dir;
}

async function findings(dir: string, sessionId?: string): Promise<Finding[]> {
  const log = await openLmdbEventLogReadOnly(dir);
  const found: Finding[] = [];
  const row = sessionId === undefined ? undefined : log.row(sessionId);
  const result = await verifyStore({ log, cacheDir: cacheDir(dir), row, found: (finding) => found.push(finding) });
  expect(result.findings).toBe(found.length);
  await log.close();
  return found;
}

/** Changes the databases behind the log's back. */
async function meddle(
  dir: string,
  change: (tables: Record<'events' | 'sessions' | 'meta', Table>) => void,
): Promise<void> {
  const root = open<Buffer, Buffer>({
    path: dir,
    noSubdir: false,
    encoding: 'binary',
    keyEncoding: 'binary',
    overlappingSync: false,
  });
  const table = (name: string): Table =>
    root.openDB<Buffer, Buffer>(name, { encoding: 'binary', keyEncoding: 'binary' }) as unknown as Table;
  change({ events: table('events'), sessions: table('sessions'), meta: table('meta') });
  await root.close();
}

interface Table {
  get(key: Buffer): Buffer | undefined;
  putSync(key: Buffer, value: Buffer): boolean;
  removeSync(key: Buffer): boolean;
}

describe('verify', () => {
  it('[ST3] finds nothing in a good store, open turns are no damage', async () => {
    const dir = await store();
    expect(await findings(dir)).toEqual([]);
    const log: EventLog = await openLmdbEventLogReadOnly(dir);
    const result = await verifyStore({ log, found: () => undefined });
    expect(result).toEqual({ sessions: 3, events: 15, findings: 0 });
    await log.close();
  });

  it('[ST3] names every record that is damaged and every number that is missing', async () => {
    const dir = await store();
    await meddle(dir, ({ events }) => {
      const key = eventKey(1, 3);
      const bytes = Buffer.from(events.get(key) as Buffer);
      bytes[bytes.length - 8] = (bytes[bytes.length - 8] as number) ^ 1;
      events.putSync(key, bytes);
      events.removeSync(eventKey(2, 2));
      events.removeSync(eventKey(2, 4));
      events.putSync(eventKey(3, 4), encodeRecord({ type: 'update', time: 1, payload: '{"a":' }, { boot: 'b' }));
    });
    expect(await findings(dir)).toEqual([
      { sessionId: 'session-1', part: 'log', seq: 3, detail: 'checksum does not match' },
      { sessionId: 'session-2', part: 'log', seq: 2, detail: 'it is missing' },
      { sessionId: 'session-2', part: 'log', seq: 4, detail: 'it is missing' },
      { sessionId: 'session-3', part: 'log', seq: 4, detail: 'what it holds is not JSON' },
    ]);
    expect(await findings(dir, 'session-3')).toHaveLength(1);
  });

  it('[ST3] names rows that cannot be right', async () => {
    const dir = await store();
    const rows = [
      { ...sessionRow(1), low: 9 },
      { ...sessionRow(2), logId: 'log1' },
      { ...sessionRow(3), base: { num: 7, seq: 1 } },
      { ...sessionRow(1), sessionId: 'twin', logId: 'twin' },
      { ...sessionRow(5), createdAt: 'yesterday' },
      { ...sessionRow(6) },
    ];
    await meddle(dir, ({ sessions }) => {
      for (const row of rows) sessions.putSync(sessionKey(row.sessionId), Buffer.from(JSON.stringify(row)));
    });
    const found = (await findings(dir)).filter(({ part }) => part === 'index');
    expect(found.map(({ sessionId, detail }) => `${sessionId}: ${detail}`).toSorted()).toEqual([
      'session-1: it begins at event 9, its last is 5',
      'session-2: it has log id log1, which is also that of "session-1"',
      'session-3: its parent, number 7, is not there',
      'session-5: its times are not times',
      'session-6: it has no events',
      'twin: it has number 1, which is also that of "session-1"',
    ]);
  });

  it('[ST3] a row that is not JSON keeps the store from being opened', async () => {
    const dir = await store();
    await meddle(dir, ({ sessions }) => sessions.putSync(sessionKey('session-2'), Buffer.from('{')));
    await expect(findings(dir)).rejects.toMatchObject({
      kind: 'damaged',
      message: expect.stringContaining('session-2') as string,
    });
  });

  it('[ST3] [RT6] damage to the ids of forgotten sessions keeps the store from being opened', async () => {
    const dir = await store();
    const log = await openLmdbEventLog(dir, SMALL);
    await log.commit({ appends: [], rows: [sessionRow(4, { tombstone: true })] });
    await log.commit({ appends: [], rows: [], forgets: ['session-4'] });
    await log.close();
    expect(await findings(dir)).toEqual([]);
    const broken = async (change: (block: Buffer) => void): Promise<void> => {
      await meddle(dir, ({ meta }) => {
        const block = Buffer.from(meta.get(META.forgotten) as Buffer);
        change(block);
        meta.putSync(META.forgotten, block);
      });
    };
    const refused = (kind: string): object => ({ kind, message: expect.stringContaining('were deleted') as string });
    await broken((block) => block.writeUInt8(block.readUInt8(9) ^ 1, 9));
    await expect(findings(dir)).rejects.toMatchObject(refused('damaged'));
    await expect(openLmdbEventLog(dir, SMALL)).rejects.toMatchObject(refused('damaged'));
    await broken((block) => block.writeUInt8(2));
    await expect(findings(dir)).rejects.toMatchObject(refused('newer'));
  });

  it('[ST3] names a cached history that is not that of its log', async () => {
    const dir = await store();
    const path = historyPath(cacheDir(dir), 2);
    const bytes = readFileSync(path);
    bytes.write('wronger', bytes.indexOf('answer'));
    writeFileSync(path, bytes);
    writeFileSync(historyPath(cacheDir(dir), 3), readFileSync(historyPath(cacheDir(dir), 1)));
    const found = await findings(dir);
    expect(found.map(({ sessionId, part }) => [sessionId, part])).toEqual([
      ['session-2', 'cache'],
      ['session-3', 'cache'],
    ]);
  });
});

describe('backup', () => {
  it('[ST4] of a store that is written to is whole, and a store of its own', async () => {
    const dir = await store();
    const log = await openLmdbEventLog(dir, SMALL);
    const target = join(dir, '..', 'copy');
    await log.commit({ appends: [], rows: [sessionRow(4, { tombstone: true })] });
    await log.commit({ appends: [], rows: [], forgets: ['session-4'] });
    const row = ROWS[0] as (typeof ROWS)[0];
    const writing = { on: true };
    const writer = (async () => {
      while (writing.on)
        await write(
          log,
          row,
          Array.from({ length: 50 }, () => textEvent('x'.repeat(500))),
        );
    })();
    expect(await backupStore(log, target)).toEqual({ outcome: 'written' });
    writing.on = false;
    await writer;
    await log.close();
    expect(await findings(target)).toEqual([]);
    expect(existsSync(`${target}.${process.pid}.unfinished`)).toBe(false);
    const copy = await openLmdbEventLog(target, SMALL);
    expect(copy.isForgotten('session-4')).toBe(true);
    expect([...copy.rows()].map(({ sessionId }) => sessionId)).toEqual(ROWS.map(({ sessionId }) => sessionId));
    for (const original of ROWS) expect(copy.row(original.sessionId)?.logId).not.toBe(original.logId);
    await write(copy, copy.row('session-1') ?? row, [textEvent('goes on')]);
    await copy.close();
  });

  it('[ST4] that is put back into the file that it was made of is a copy all the same', async () => {
    const dir = await store();
    const log = await openLmdbEventLog(dir, SMALL);
    const row = ROWS[0] as (typeof ROWS)[0];
    const target = join(dir, '..', 'copy');
    expect(await backupStore(log, target)).toEqual({ outcome: 'written' });
    expect(readdirSync(target)).toEqual(['data.mdb']);
    await write(log, row, [textEvent('only in the original')]);
    await log.close();
    const { ino } = statSync(join(dir, 'data.mdb'));
    writeFileSync(join(dir, 'data.mdb'), readFileSync(join(target, 'data.mdb')));
    expect(statSync(join(dir, 'data.mdb')).ino).toBe(ino);
    const restored = await openLmdbEventLog(dir, SMALL);
    const logId = restored.row(row.sessionId)?.logId;
    expect(logId).not.toBe(row.logId);
    await restored.close();
    // Once.
    const again = await openLmdbEventLog(dir, SMALL);
    expect(again.row(row.sessionId)?.logId).toBe(logId);
    await again.close();
  });

  it('[ST4] does not write over anything', async () => {
    const dir = await store();
    const log = await openLmdbEventLog(dir, SMALL);
    expect(await backupStore(log, dir)).toEqual({ outcome: 'refused', message: `${dir} is not empty` });
    await log.close();
  });
});
