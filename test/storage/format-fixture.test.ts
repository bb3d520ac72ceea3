/** Stores that earlier releases wrote, kept for good: they open, read and replay. See `test/fixtures/write-store.ts`. */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { crc32, gunzipSync } from 'node:zlib';
import { open } from 'lmdb';
import { describe, expect, it } from 'vitest';
import { UPDATE_KINDS } from '../../protocol/v1/update-kinds.ts';
import { encodeRecord, HEADER_BYTES } from '../../storage/event-codec.ts';
import type { EventLog } from '../../storage/event-log.ts';
import { exportSession } from '../../storage/export.ts';
import { FORMAT_VERSION } from '../../storage/format-version.ts';
import { HistoryCache } from '../../storage/history-cache.ts';
import { openLmdbEventLog, openLmdbEventLogReadOnly } from '../../storage/lmdb-event-log.ts';
import { eventKey } from '../../storage/log-keys.ts';
import { verifyStore } from '../../storage/verify.ts';
import { at, updateOf } from '../support/json.ts';
import { testScope } from '../support/scope.ts';
import { ROOT, streamAgentCommand } from '../support/scripted-agent.ts';
import { runCommand, Sidecar } from '../support/sidecar.ts';
import { tempDir } from '../support/temp-dir.ts';
import { textEvent, write } from '../support/written-log.ts';

const FOLDER = join(ROOT, 'test/fixtures');
const SMALL = { minFreeBytes: 0, ballastBytes: 1024 };
const versions = readdirSync(FOLDER).flatMap((name) => /^store-format-(\d+)\.mdb\.gz$/.exec(name)?.[1] ?? []);
const IDS = ['everything é😀', 'fork', 'cut off', 'pruned'];

function unpacked(version: string): string {
  const dir = join(tempDir(testScope()), 'store');
  mkdirSync(dir, { mode: 0o700 });
  writeFileSync(join(dir, 'data.mdb'), gunzipSync(readFileSync(join(FOLDER, `store-format-${version}.mdb.gz`))));
  return dir;
}

async function exportsOf(log: EventLog): Promise<string> {
  let text = '';
  for (const id of IDS) {
    const row = log.row(id);
    if (row) await exportSession(log, row, 1000, (wire) => void (text += wire));
  }
  return Buffer.from(text, 'latin1').toString();
}

it('every format has its store', () => {
  expect(versions.map(Number)).toEqual(Array.from({ length: FORMAT_VERSION }, (_, i) => i + 1));
});

describe.each(versions)('a store of format %s', (version) => {
  const expected = readFileSync(join(FOLDER, `store-format-${version}.ndjson`), 'utf8');

  it('[ST6] reads as what was written, and nothing is wrong with it', async () => {
    const dir = unpacked(version);
    if (Number(version) === FORMAT_VERSION) {
      const reader = await openLmdbEventLogReadOnly(dir);
      expect(await exportsOf(reader)).toBe(expected);
      await reader.close();
    }
    const log = await openLmdbEventLog(dir, SMALL);
    expect(await exportsOf(log)).toBe(expected);
    expect(log.row('deleted')?.tombstone).toBe(true);
    expect((await verifyStore({ log, found: () => undefined })).findings).toBe(0);
    await log.close();
  });

  it('[ST6] is written on, and gives histories', async () => {
    const dir = unpacked(version);
    const log = await openLmdbEventLog(dir, SMALL);
    const row = log.row('fork');
    if (!row) throw new Error('no fork');
    const before = log.lastSeq(row.num);
    await write(log, row, [textEvent(', and more')]);
    await log.close();
    const again = await openLmdbEventLog(dir, SMALL);
    expect(again.lastSeq(row.num)).toBe(before + 1);
    const cache = new HistoryCache(again, undefined);
    const said = (await cache.page(again.row('fork') ?? row)).messages.toReversed();
    expect(said.map((message) => at(message, 'content', 0, 'text'))).toEqual([
      'question é😀second block',
      'first answer',
      'in the fork',
      'only here, and more',
    ]);
    expect(again.nextNum()).toBeGreaterThan(4);
    await again.close();
  });

  it('[ST6] replays to a client, cut off turns are repaired', async () => {
    const scope = testScope();
    const store = unpacked(version);
    const sidecar = await Sidecar.start(scope, { agent: streamAgentCommand(), store });
    const client = await sidecar.unix();
    await client.initialize();
    await client.load('everything é😀');
    expect(client.agentText('everything é😀')).toBe('first answer[something was too large]joined text');
    expect(client.received.map(({ message }) => updateOf(message)?.['sessionUpdate'])).toContain('_alien');
    await client.load('fork');
    expect(client.agentText('fork')).toBe('first answeronly here');
    await client.load('pruned');
    expect(client.agentText('pruned')).toBe('is here');
    await client.load('cut off');
    const closers = client.received.filter(({ message }) => at(message, 'params', 'update', 'toolCallId') === 'tool-9');
    expect(closers.map(({ message }) => at(message, 'params', 'update', 'status'))).toEqual(['in_progress', 'failed']);
  });
});

it('a text that turns out damaged while it is replayed ends the replay, and everything else goes on', async () => {
  const scope = testScope();
  const store = unpacked('1');
  // The fold looks at head and checksum only: the fields are found to be wrong when the text is sent.
  const payload = '{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"t"}}';
  const kind = UPDATE_KINDS.agent_message_chunk;
  const record = encodeRecord({ type: 'update', time: 1, payload, meta: '{}' }, { boot: 'b', kind });
  record.writeUInt32BE(1_000_000, HEADER_BYTES + 1);
  record.writeUInt32BE(crc32(record.subarray(0, -4)), record.length - 4);
  await meddle(store, 'events', eventKey(4, 2), record);
  const sidecar = await Sidecar.start(scope, { agent: streamAgentCommand(), store });
  const client = await sidecar.unix();
  await client.initialize();
  const { message } = await client.ask('session/attach', { sessionId: 'cut off' });
  expect(message.error).toMatchObject({ code: -32603, data: { kind: 'log_damaged', seq: 2 } });
  await client.load('fork');
  expect(client.agentText('fork')).toBe('first answeronly here');
});

/** Changes a store behind its back. */
async function meddle(dir: string, database: string, key: Buffer, value: Buffer): Promise<void> {
  const root = open<Buffer, Buffer>({
    path: dir,
    noSubdir: false,
    encoding: 'binary',
    keyEncoding: 'binary',
    overlappingSync: false,
  });
  root.openDB<Buffer, Buffer>(database, { encoding: 'binary', keyEncoding: 'binary' }).putSync(key, value);
  await root.close();
}

function alien(required: boolean): Buffer {
  const record = encodeRecord({ type: 'update', time: 1, payload: '{}', required }, { boot: 'b' });
  record[1] = 201;
  record.writeUInt32BE(crc32(record.subarray(0, -4)), record.length - 4);
  return record;
}

describe('what a newer version wrote', () => {
  it('[DU9] a newer store is refused with exit code 4, by every command', async () => {
    const store = unpacked('1');
    await meddle(store, 'meta', Buffer.from('format'), Buffer.from(String(FORMAT_VERSION + 1)));
    const serve = ['serve', '--listen', '127.0.0.1:0', '--store', store, '--', process.execPath, '-e', '0'];
    for (const args of [
      serve,
      ['sessions', '--store', store],
      ['verify', '--store', store],
      ['delete', 'x', '--store', store],
    ]) {
      const result = await runCommand(args);
      expect([args[0], result.code]).toEqual([args[0], 4]);
      expect(result.stderr).toContain('newer version');
    }
  });

  it('[EV6] an event of an unknown type passes when it is optional and refuses its session when it is required', async () => {
    const scope = testScope();
    const store = unpacked('1');
    await meddle(store, 'events', eventKey(1, 16), alien(false));
    await meddle(store, 'events', eventKey(4, 2), alien(true));
    for (const command of ['events', 'history', 'export', 'verify']) {
      const good = await runCommand([command, 'everything é😀', '--store', store]);
      expect([command, good.code], good.stderr).toEqual([command, 0]);
      const bad = await runCommand([command, 'cut off', '--store', store]);
      expect([command, bad.code], bad.stdout).toEqual([command, 4]);
      expect(bad.stderr + bad.stdout).toContain('event type 201 is not known');
    }
    const sidecar = await Sidecar.start(scope, { agent: streamAgentCommand(), store });
    const client = await sidecar.unix();
    await client.initialize();
    await client.load('everything é😀');
    for (const method of ['session/load', '_sidecar/history', '_sidecar/events']) {
      const { message } = await client.ask(method, { sessionId: 'cut off', cwd: '/tmp', mcpServers: [] });
      expect(message.error, method).toMatchObject({ code: -32603, data: { kind: 'log_damaged', seq: 2 } });
    }
  });
});
