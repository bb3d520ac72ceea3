/** The commands that work on a store, beside a running server and without one. */
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openLmdbEventLog } from '../../storage/lmdb-event-log.ts';
import { at, updateOf } from '../support/json.ts';
import { testScope } from '../support/scope.ts';
import { type CommandResult, runCommand, Sidecar, SIDECAR_PROGRAM } from '../support/sidecar.ts';
import { streamAgentCommand } from '../support/scripted-agent.ts';
import { setStage, type Stage } from '../support/stage.ts';
import { tempDir } from '../support/temp-dir.ts';
import { waitFor } from '../support/wait-for.ts';
import { promptEvent, textEvent, write } from '../support/written-log.ts';
import { sessionRow } from '../support/session-row.ts';

async function spoken(stage: Stage, ...answers: string[]): Promise<void> {
  for (const answer of answers) {
    const turn = await stage.turn('question');
    stage.life.say(stage.agentSessionId, answer);
    await turn.end();
  }
}

function onStore(store: string, ...args: string[]): Promise<CommandResult> {
  return runCommand([...args, '--store', store]);
}

async function done(store: string, ...args: string[]): Promise<string> {
  const result = await onStore(store, ...args);
  expect(result.code, `${args.join(' ')}: ${result.stderr}`).toBe(0);
  return result.stdout;
}

function lines(text: string): Record<string, unknown>[] {
  return text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}

/** Events without what a copy has of its own. */
function plain(text: string): unknown[] {
  return lines(text).map(({ eventId: _eventId, ...event }) => event);
}

async function listed(store: string): Promise<unknown[]> {
  const sessions = JSON.parse(await done(store, 'sessions', '--json')) as { sessionId: string }[];
  return sessions.map(({ sessionId }) => sessionId).toSorted();
}

describe('export and import', () => {
  it('[ST1] [ST5] copy a session within a running server, which serves it at once', async () => {
    const stage = await setStage(testScope());
    const { sidecar, sessionId } = stage;
    await spoken(stage, 'one', 'two');
    const file = join(tempDir(stage.scope), 'session.ndjson');
    await done(sidecar.store, 'export', sessionId, '--out', file);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(await done(sidecar.store, 'export', sessionId)).toContain(readFileSync(file, 'utf8').split('\n')[3]);
    expect(await done(sidecar.store, 'import', file, '--as', 'copy')).toBe('copy\n');
    const client = await stage.join();
    await client.load('copy');
    expect(client.agentText('copy')).toBe('onetwo');
    const copied = plain(await done(sidecar.store, 'events', 'copy', '--json'));
    const original = plain(await done(sidecar.store, 'events', sessionId, '--json'));
    expect(copied.slice(0, original.length)).toEqual(original);
    // Two sessions must not go on in one session of the agent.
    expect(copied.slice(original.length)).toMatchObject([{ type: 'session_forked', synthetic: true }]);
    const cursor = stage.client.cursors.get(sessionId);
    const answer = await client.load('copy', cursor);
    expect(at(answer, '_meta', 'sidecar')).toMatchObject({ mode: 'full', reason: 'foreign' });
  });

  it('[ST1] no secret that a client gave is in an export', async () => {
    const stage = await setStage(testScope());
    const server = {
      name: 'tools',
      command: '/bin/tool',
      args: ['--key', 'SECRET-1'],
      env: [{ name: 'K', value: 'SECRET-2' }],
    };
    const sessionId = await stage.client.newSession('/tmp', { mcpServers: [server] });
    const text = await done(stage.sidecar.store, 'export', sessionId);
    expect(text).toContain('tools');
    expect(text).not.toMatch(/SECRET|bin\/tool/);
  });

  it('[ST2] [ST5] move a session to a new store, without a server; refuse what is there or broken', async () => {
    const stage = await setStage(testScope());
    await spoken(stage, 'one');
    const { store } = stage.sidecar;
    const dir = tempDir(stage.scope);
    const [file, other] = [join(dir, 'session.ndjson'), join(dir, 'other')];
    await done(store, 'export', stage.sessionId, '--out', file);
    expect(await done(other, 'import', file)).toBe(`${stage.sessionId}\n`);
    expect(plain(await done(other, 'events', stage.sessionId, '--json'))).toEqual(
      plain(await done(store, 'events', stage.sessionId, '--json')),
    );
    const again = await onStore(other, 'import', file);
    expect([again.code, again.stdout]).toEqual([1, '']);
    expect(again.stderr).toContain('--as');
    writeFileSync(file, readFileSync(file, 'utf8').replace('"one"', '"two"'));
    const changed = await onStore(other, 'import', file, '--as', 'x');
    expect([changed.code, changed.stderr]).toEqual([1, expect.stringContaining('checksum') as string]);
    expect((await onStore(other, 'import', join(dir, 'nothing'))).code).toBe(1);
    for (const place of [dir, '/dev/zero']) {
      expect((await onStore(other, 'import', place)).stderr).toContain(`${place} is no file`);
    }
    const nowhere = await onStore(store, 'export', stage.sessionId, '--out', join(dir, 'no', 'file'));
    expect([nowhere.code, nowhere.stderr]).toEqual([1, expect.stringContaining('there is no directory') as string]);
    expect(await listed(other)).toEqual([stage.sessionId]);
  });
});

describe('delete', () => {
  it('[ST5] takes a session away under a running server, for everyone and for good', async () => {
    const stage = await setStage(testScope());
    await spoken(stage, 'one');
    const { sidecar, sessionId } = stage;
    expect(await done(sidecar.store, 'delete', sessionId)).toBe(`${sessionId}\n`);
    const client = await stage.join();
    const { message } = await client.ask('session/load', { sessionId, cwd: '/tmp', mcpServers: [] });
    expect(message.error?.code).toBe(-32002);
    await sidecar.restart();
    expect(await listed(sidecar.store)).toEqual([]);
    const again = await onStore(sidecar.store, 'delete', sessionId);
    expect([again.code, again.stderr]).toEqual([1, expect.stringContaining('was deleted') as string]);
  });

  it('[ST5] works without a server, and its space is used again', async () => {
    const scope = testScope();
    const store = join(tempDir(scope), 'store');
    const fill = async (num: number): Promise<number> => {
      const log = await openLmdbEventLog(store);
      const row = sessionRow(num);
      await write(log, row, [
        promptEvent('t', 'x'),
        ...Array.from({ length: 4000 }, () => textEvent('y'.repeat(1000))),
      ]);
      const bytes = log.bytes();
      await log.close();
      return bytes;
    };
    const once = await fill(1);
    await done(store, 'delete', 'session-1');
    const twice = await fill(2);
    expect(twice).toBeLessThan(once * 1.3);
    expect(await done(store, 'verify')).toContain('1 sessions, 4001 events: all is well');
  });
});

describe('verify, repair, backup', () => {
  it('[ST3] verify is content with a store in use, and exits with 4 when it is not', async () => {
    const stage = await setStage(testScope(), { optIn: true });
    await spoken(stage, 'one');
    await stage.client.request('_sidecar/history', { sessionId: stage.sessionId });
    const { store } = stage.sidecar;
    expect(await done(store, 'verify')).toMatch(/^1 sessions, \d+ events: all is well\n$/);
    await stage.turn('open');
    expect(await done(store, 'verify', stage.sessionId, '--json')).toContain('"findings":0');
    const path = join(store, 'cache', '1.history');
    writeFileSync(path, readFileSync(path, 'latin1').replaceAll('one', 'two'), 'latin1');
    const bad = await onStore(store, 'verify');
    expect(bad.code).toBe(4);
    expect(bad.stdout).toContain(`session "${stage.sessionId}": cache: `);
  });

  it('[ST5] repair closes what a crash left open, once, with a server and without', async () => {
    const stage = await setStage(testScope());
    const { sidecar, sessionId, life, agentSessionId } = stage;
    await stage.turn('question');
    life.update(agentSessionId, { sessionUpdate: 'tool_call', toolCallId: 't', title: 'T', status: 'in_progress' });
    await stage.client.until('the tool call', ({ message }) => at(updateOf(message), 'toolCallId') === 't');
    await sidecar.kill();
    const inspected = await done(sidecar.store, 'events', sessionId, '--json');
    expect(await done(sidecar.store, 'repair', sessionId)).toContain('2 events added');
    const repaired = await done(sidecar.store, 'events', sessionId, '--json');
    const withoutTimes = (text: string): unknown[] => lines(text).map((event) => ({ ...event, time: 0 }));
    expect(withoutTimes(repaired)).toEqual(withoutTimes(inspected));
    expect(await done(sidecar.store, 'repair', sessionId)).toBe('nothing to repair\n');
    await sidecar.start();
    expect(await done(sidecar.store, 'repair', sessionId)).toBe('nothing to repair\n');
    expect(await done(sidecar.store, 'events', sessionId, '--json')).toBe(repaired);
    expect((await onStore(sidecar.store, 'repair', 'nobody')).code).toBe(1);
  });

  it('[ST4] a backup of a running server is a store that another server runs on', async () => {
    const stage = await setStage(testScope());
    await spoken(stage, 'one');
    const { sidecar, sessionId } = stage;
    const copy = join(tempDir(stage.scope), 'copy');
    expect(await done(sidecar.store, 'backup', copy)).toBe(`${copy}\n`);
    expect(statSync(copy).mode & 0o777).toBe(0o700);
    expect(await done(copy, 'verify')).toContain('all is well');
    expect(plain(await done(copy, 'events', sessionId, '--json'))).toEqual(
      plain(await done(sidecar.store, 'events', sessionId, '--json')),
    );
    await spoken(stage, 'two');
    // Where nothing can be made the server says so, and goes on.
    const nowhere = await onStore(sidecar.store, 'backup', '/proc/x');
    expect(nowhere.code).toBe(1);
    expect(nowhere.stderr).toContain('/proc/x cannot be made');
    const refused = await onStore(sidecar.store, 'backup', copy);
    expect([refused.code, refused.stderr]).toEqual([1, expect.stringContaining('is not empty') as string]);
    const inside = await onStore(sidecar.store, 'backup', join(sidecar.store, 'copy'));
    expect([inside.code, inside.stderr]).toEqual([1, expect.stringContaining('is in the store') as string]);
    await sidecar.stop();
    const offline = join(tempDir(stage.scope), 'offline');
    await done(sidecar.store, 'backup', offline);
    expect(await done(offline, 'events', sessionId)).toContain('two');
  });
});

describe('a writing command', () => {
  it('[ST5] that meets a server it cannot ask says who has the store, exit code 3', async () => {
    const scope = testScope();
    const store = join(tempDir(scope), 'store');
    const log = await openLmdbEventLog(store);
    await write(log, sessionRow(1), [textEvent('x')]);
    const result = await onStore(store, 'delete', 'session-1');
    expect([result.code, result.stderr]).toEqual([3, expect.stringContaining(String(process.pid)) as string]);
    expect(log.row('session-1')?.tombstone).toBeUndefined();
    await log.close();
  });

  it('makes no store where there is none', async () => {
    const store = join(tempDir(testScope()), 'store');
    for (const args of [
      ['delete', 'x'],
      ['repair', 'x'],
      ['backup', `${store}-copy`],
    ]) {
      expect((await onStore(store, ...args)).code, args.join(' ')).toBe(1);
      expect(existsSync(store)).toBe(false);
    }
  });
});

describe('status and stop', () => {
  it('tell of a running server and end it in good order; without one they say so and exit with 1', async () => {
    const stage = await setStage(testScope());
    const { sidecar } = stage;
    const status = JSON.parse(await done(sidecar.store, 'status', '--json')) as object;
    expect(status).toMatchObject({
      running: true,
      pid: sidecar.pid,
      store: sidecar.store,
      sessions: 1,
      openSessions: 1,
      runningTurns: 0,
      clients: 1,
      agent: 'ready',
    });
    expect(await done(sidecar.store, 'status')).toContain(String(sidecar.pid));
    await done(sidecar.store, 'stop');
    expect(await sidecar.exited()).toEqual({ code: 0, signal: null });
    for (const command of ['status', 'stop']) {
      const result = await onStore(sidecar.store, command);
      expect([result.code, result.stdout]).toEqual([1, expect.stringContaining('no sidecar runs') as string]);
    }
    expect(existsSync(join(sidecar.store, 'control.sock'))).toBe(false);
  });

  it('work on a store whose path is longer than a socket may have', async () => {
    const scope = testScope();
    const store = join(tempDir(scope), 'x'.repeat(120));
    const sidecar = await Sidecar.start(scope, { agent: streamAgentCommand(), store });
    expect(JSON.parse(await done(store, 'status', '--json'))).toMatchObject({ pid: sidecar.pid });
    await done(store, 'stop');
    expect((await sidecar.exited()).code).toBe(0);
  });

  it('[ST5] the control socket that a killed server left is nobody', async () => {
    const scope = testScope();
    const stage = await setStage(scope);
    await stage.sidecar.kill();
    expect((await onStore(stage.sidecar.store, 'status')).code).toBe(1);
    await done(stage.sidecar.store, 'repair', stage.sessionId);
    await stage.sidecar.start();
    expect((await onStore(stage.sidecar.store, 'status')).code).toBe(0);
  });
});

describe('tail', () => {
  it('prints the last events and then each as it is written', async () => {
    const stage = await setStage(testScope());
    const { sidecar, sessionId } = stage;
    await spoken(stage, 'one');
    const child = spawn(process.execPath, [SIDECAR_PROGRAM, 'tail', sessionId, '--json', '--store', sidecar.store]);
    stage.scope.defer(() => child.kill('SIGKILL'));
    let out = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => (out += text));
    await waitFor('the events that are there', () => out.includes('turn_ended'));
    await spoken(stage, 'two');
    const events = await done(sidecar.store, 'events', sessionId, '--json');
    await waitFor(
      () => `the new ones, got:\n${out}`,
      () => events.endsWith(out) && out.includes('"two"'),
    );
    expect(lines(out).length).toBeGreaterThan(4);
  });
});

describe('fork', () => {
  it('[ST5] shares the past up to the end of a turn, in a running server and without one', async () => {
    const stage = await setStage(testScope());
    await spoken(stage, 'one', 'two');
    const { sidecar, sessionId } = stage;
    const events = lines(await done(sidecar.store, 'events', sessionId, '--json'));
    const ends = events.filter(({ type }) => type === 'turn_ended').map(({ eventId }) => String(eventId));
    const first = (await done(sidecar.store, 'fork', sessionId, '--at', ends[0] ?? '')).trim();
    const client = await stage.join();
    await client.load(first);
    expect(client.agentText(first)).toBe('one');
    const inside = await onStore(sidecar.store, 'fork', sessionId, '--at', String(events[3]?.['eventId']));
    expect([inside.code, inside.stderr]).toEqual([1, expect.stringContaining('cannot be forked there') as string]);
    await sidecar.stop();
    const second = (await done(sidecar.store, 'fork', sessionId)).trim();
    expect(await listed(sidecar.store)).toEqual([sessionId, first, second].toSorted());
    const forked = lines(await done(sidecar.store, 'events', second, '--json'));
    expect(forked.slice(0, events.length).map(({ payload }) => payload)).toEqual(events.map(({ payload }) => payload));
    expect(forked.slice(events.length).map(({ type }) => type)).toEqual(['session_created', 'session_forked']);
    await done(sidecar.store, 'delete', sessionId);
    await sidecar.start();
    const again = await sidecar.unix();
    await again.initialize();
    await again.load(second);
    expect(again.agentText(second)).toBe('onetwo');
    expect(await done(sidecar.store, 'verify')).toContain('all is well');
  });
});

describe('prune', () => {
  it('[RT2] needs a limit, tells what would go, and takes only what nobody uses', async () => {
    const stage = await setStage(testScope());
    const { sidecar, client, sessionId } = stage;
    const idle = await client.newSession();
    await client.request('session/close', { sessionId: idle });
    await spoken(stage, 'one');
    expect((await onStore(sidecar.store, 'prune')).code).toBe(2);
    const dry = lines(await done(sidecar.store, 'prune', '--retain', '1', '--dry-run', '--json'));
    expect(dry).toMatchObject([{ sessionId: idle, pruned: 'session', dryRun: true }]);
    expect(await listed(sidecar.store)).toHaveLength(2);
    expect(await done(sidecar.store, 'prune', '--retain', '1s,1')).toContain(idle);
    expect(await listed(sidecar.store)).toEqual([sessionId]);
    expect(client.closed).toBeUndefined();
    await spoken(stage, 'two');
  });

  it('[RT1] [RT3] cuts a session that is in use: its clients go on, old cursors are expired, titles and state stay', async () => {
    const stage = await setStage(testScope());
    const { sidecar, client, sessionId, life, agentSessionId } = stage;
    await spoken(stage, 'one');
    life.update(agentSessionId, {
      sessionUpdate: 'available_commands_update',
      availableCommands: [{ name: 'c', description: 'd' }],
    });
    const old = client.cursors.get(sessionId);
    await spoken(stage, ...Array.from({ length: 20 }, (_, i) => `answer ${i} `));
    const cursor = client.cursors.get(sessionId);
    const title = (await done(sidecar.store, 'sessions', '--json')).match(/"title":"[^"]*"/)?.[0];
    const history = lines(await done(sidecar.store, 'history', sessionId, '--json'));
    expect(await done(sidecar.store, 'prune', sessionId, '--retain-events', '20')).toMatch(/events before \d+/);
    await spoken(stage, 'after');
    expect(client.agentText(sessionId)).toContain('answer 19 after');
    const fresh = await stage.join();
    const full = at(await fresh.load(sessionId), '_meta', 'sidecar');
    expect(full).toMatchObject({ mode: 'full', truncated: true });
    expect(fresh.agentText(sessionId)).toMatch(/^answer 1\d .*after$/);
    expect(JSON.stringify(fresh.received.map(({ message }) => updateOf(message)))).toContain(
      'available_commands_update',
    );
    const late = await stage.join();
    expect(at(await late.load(sessionId, old), '_meta', 'sidecar')).toMatchObject({ mode: 'full', reason: 'expired' });
    const soon = await stage.join();
    expect(at(await soon.load(sessionId, cursor), '_meta', 'sidecar')).toMatchObject({ mode: 'tail' });
    expect(soon.agentText(sessionId)).toBe('after');
    expect((await done(sidecar.store, 'sessions', '--json')).match(/"title":"[^"]*"/)?.[0]).toBe(title);
    const kept = lines(await done(sidecar.store, 'history', sessionId, '--json'));
    const bare = ({ eventId, ...message }: Record<string, unknown>): unknown => [eventId, message];
    expect(history.map(bare).slice(-4)).toEqual(kept.slice(0, -2).map(bare).slice(-4));
    await sidecar.restart();
    const again = await sidecar.unix();
    await again.initialize();
    await again.load(sessionId, cursor);
    expect(again.agentText(sessionId)).toBe('after');
    expect(await done(sidecar.store, 'verify')).toContain('all is well');
    // A copy through a file begins where the session begins now.
    const file = join(tempDir(stage.scope), 'x.ndjson');
    await done(sidecar.store, 'export', sessionId, '--out', file);
    await done(sidecar.store, 'import', file, '--as', 'copy');
    expect(at(await again.load('copy'), '_meta', 'sidecar')).toMatchObject({ mode: 'full', truncated: true });
    expect(again.agentText('copy')).toBe(fresh.agentText(sessionId));
  });

  it('[RT1] a prompt that was answered before the cut is not run again', async () => {
    const stage = await setStage(testScope(), { optIn: true });
    const { sidecar, client, sessionId, life } = stage;
    const params = { sessionId, prompt: [{ type: 'text', text: 'once' }], _meta: { sidecar: { promptId: 'p1' } } };
    life.received.length = 0;
    const answer = client.ask('session/prompt', params);
    life.reply((await life.saw('session/prompt')).message, { stopReason: 'end_turn' });
    await answer;
    for (let i = 1; i < 4; i++) {
      const more = client.prompt(sessionId, 'more');
      life.reply((await life.saw('session/prompt', i)).message, { stopReason: 'end_turn' });
      await more;
    }
    await done(sidecar.store, 'prune', '--retain-events', '4');
    const lost = { kind: 'interrupted', code: 'PROMPT_OUTCOME_UNKNOWN' };
    expect((await client.ask('session/prompt', params)).message.error).toMatchObject({ data: lost });
    await sidecar.restart();
    const again = await sidecar.unix();
    await again.initialize({ sidecar: true });
    expect((await again.ask('session/prompt', params)).message.error).toMatchObject({ data: lost });
    expect(life.received.filter(({ message }) => message.method === 'session/prompt')).toHaveLength(4);
    const { received } = await stage.agent.life(1);
    expect(received.filter(({ message }) => message.method === 'session/prompt')).toEqual([]);
  });

  it('[RT1] is done by the server itself, as --retain-events says', async () => {
    const stage = await setStage(testScope(), { args: ['--retain-events', '12'] });
    await spoken(stage, ...Array.from({ length: 10 }, (_, i) => `answer ${i} `));
    await stage.sidecar.restart();
    await waitFor(
      () => 'the beginning to be pruned',
      async () => (await done(stage.sidecar.store, 'events', stage.sessionId, '--json')).includes('"type":"pruned"'),
    );
    expect(await done(stage.sidecar.store, 'verify')).toContain('all is well');
  });
});
