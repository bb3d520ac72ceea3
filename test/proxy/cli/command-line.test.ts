import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { encodeWire } from '../../../protocol/wire-text.ts';
import { EXIT_CODES } from '../../../proxy/cli/exit-code.ts';
import { optionsOf } from '../../../proxy/options.ts';
import { VERSION } from '../../../proxy/version.ts';
import { encodeRecord } from '../../../storage/event-codec.ts';
import type { EventLog, SessionRow } from '../../../storage/event-log.ts';
import { openLmdbEventLog } from '../../../storage/lmdb-event-log.ts';

const ROOT = join(import.meta.dirname, '../../..');
const BIN = join(ROOT, 'bin/acp-sidecar.cjs');
const TIME = Date.UTC(2026, 0, 2, 3, 4, 5);
// Pretty-printed by a client, and with an escape sequence that would colour a terminal.
const PROMPT = encodeWire('{"prompt": [\n{"type":"text","text":"hé \\u001b[31m"}]}');
const NUMBERS = '{"sessionUpdate":"x","a":1.0,"b":12345678901234567890,"c":1e400,"d":"\\u00e9\\ud83d"}';

interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

function run(args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Ended> {
  return new Promise((resolve) => {
    execFile(BIN, args, { env: { ...process.env, ...env } }, (error, stdout, stderr) => {
      resolve({ code: error ? Number(error.code) : 0, stdout, stderr });
    });
  });
}

describe('the command line', () => {
  it('prints its version, which is that of the package', async () => {
    expect(await run(['--version'])).toEqual({ code: 0, stdout: `${VERSION}\n`, stderr: '' });
    expect((JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string }).version).toBe(VERSION);
  });

  it('explains itself', async () => {
    const { code, stdout } = await run(['--help']);
    expect(code).toBe(0);
    for (const command of ['serve', 'sessions', 'show', 'events']) expect(stdout).toContain(command);
    for (const { code: exit, meaning } of Object.values(EXIT_CODES)) expect(stdout).toContain(`${exit}  ${meaning}`);
  });

  it.each(['serve', 'sessions', 'show', 'events'] as const)('%s --help lists its options', async (command) => {
    const { code, stdout } = await run([command, '--help']);
    expect(code).toBe(0);
    for (const spec of optionsOf(command)) expect(stdout).toContain(`--${spec.name}`);
  });

  it.each([
    [['serve'], "missing required argument 'agent'"],
    [['serve', '--bogus', '--', 'x'], "unknown option '--bogus'"],
    [['serve', '--drain', '5', '--', 'x'], '--drain: "5" is not a duration'],
    [['show'], "missing required argument 'ID'"],
    [['nonsense'], "unknown command 'nonsense'"],
  ])('%j is a usage error', async (args, message) => {
    const { code, stdout, stderr } = await run(args);
    expect(code).toBe(EXIT_CODES.usage.code);
    expect(stdout).toBe('');
    expect(stderr).toContain(message);
  });
});

describe('commands that read a store', () => {
  let dir: string;
  let log: EventLog;

  function row(sessionId: string, num: number, updatedAt: number, more: Partial<SessionRow> = {}): SessionRow {
    return { sessionId, num, logId: `log${num}`, cwd: '/work', createdAt: TIME, updatedAt, bound: [], low: 1, ...more };
  }

  beforeAll(async () => {
    dir = mkdtempSync(join(tmpdir(), 'read-'));
    log = await openLmdbEventLog(join(dir, 'store'), { minFreeBytes: 0 });
    const record = (more: Parameters<typeof encodeRecord>[0]): Buffer => encodeRecord(more, { boot: 'aaaaaa' });
    const records = [
      record({ type: 'session_created', time: TIME, payload: '{}' }),
      record({ type: 'turn_started', time: TIME, turnId: 't1', payload: PROMPT }),
      record({ type: 'update', time: TIME, turnId: 't1', toolCallId: encodeWire('c"é'), payload: NUMBERS }),
      record({ type: 'turn_ended', time: TIME, turnId: 't1', synthetic: true, payload: '{"outcome":"interrupted"}' }),
    ];
    await log.commit({
      appends: [
        { num: 1, firstSeq: 1, records },
        { num: 2, firstSeq: 1, records: records.slice(0, 1) },
      ],
      rows: [
        row('older é', 1, TIME, { title: 'A title' }),
        row('newer', 2, TIME + 1),
        row('gone', 3, TIME, { tombstone: true }),
      ],
    });
  });

  afterAll(async () => {
    await log.close();
    rmSync(dir, { recursive: true });
  });

  const read = (...args: string[]): Promise<Ended> => run([...args, '--store', join(dir, 'store')]);

  it('sessions: newest first, deleted ones not, also while a server has the store', async () => {
    const { code, stdout } = await read('sessions', '--json');
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toEqual([
      expect.objectContaining({ sessionId: 'newer', events: 1, lastEventId: 'log2-1' }),
      {
        sessionId: 'older é',
        title: 'A title',
        cwd: '/work',
        createdAt: '2026-01-02T03:04:05.000Z',
        updatedAt: '2026-01-02T03:04:05.000Z',
        events: 4,
        lastEventId: 'log1-4',
      },
    ]);
    expect((await read('sessions')).stdout).toMatch(/SESSION.*\nnewer .*\nolder é .*A title\n$/);
  });

  it('show: one object', async () => {
    const { stdout } = await read('show', 'older é', '--json');
    expect(JSON.parse(stdout)).toMatchObject({
      turns: 1,
      lastTurn: { turnId: 't1', state: 'ended' },
      eventTypes: { update: 1 },
    });
    expect((await read('show', 'newer')).stdout).toContain('log2-1');
  });

  it('events: one object a line, the payload to the byte', async () => {
    const { stdout } = await read('events', 'older é', '--json');
    const lines = stdout.trimEnd().split('\n');
    expect(lines).toHaveLength(4);
    expect(lines[2]).toBe(
      `{"seq":3,"eventId":"log1-3","time":"2026-01-02T03:04:05.000Z","type":"update","turnId":"t1","toolCallId":"c\\"é","payload":${NUMBERS}}`,
    );
    expect(JSON.parse(lines[1] ?? '')).toMatchObject({ payload: { prompt: [{ text: 'hé \u001b[31m' }] } });
    expect(JSON.parse(lines[3] ?? '')).toMatchObject({ synthetic: true });
  });

  it('events for people: no control character of an agent reaches the terminal', async () => {
    const { stdout } = await read('events', 'older é');
    expect(stdout.split('\n')[1]).toMatch(/turn_started +hé +\[31m$/);
    expect(stdout).not.toContain('\u001b');
  });

  it.each(['show', 'events'])('%s of an unknown session says what to do', async (command) => {
    const { code, stdout, stderr } = await read(command, 'nobody');
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    expect(stderr).toContain('session "nobody" is not in this store');
    expect(stderr).toContain('acp-sidecar sessions');
  });

  it('no store: says so and makes none', async () => {
    const { code, stderr } = await run(['sessions', '--store', join(dir, 'none')]);
    expect(code).toBe(1);
    expect(stderr).toContain('has no store');
  });

  it('the store can be named by the environment', async () => {
    const { code } = await run(['show', 'newer'], { ACP_SIDECAR_STORE: join(dir, 'store') });
    expect(code).toBe(0);
  });
});
