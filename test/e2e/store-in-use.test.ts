import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { at } from '../support/json.ts';
import { testScope } from '../support/scope.ts';
import { runCommand } from '../support/sidecar.ts';
import { setStage } from '../support/stage.ts';
import { tempDir } from '../support/temp-dir.ts';
import { storeAtRest } from '../support/store-at-rest.ts';

/** The store's data files and what is in them. Lock files and reader tables are not data. */
function dataOf(store: string): Record<string, string> {
  const files = readdirSync(store, { recursive: true, withFileTypes: true }).filter((entry) => {
    return entry.isFile() && !/lock/.test(entry.name);
  });
  return Object.fromEntries(
    files.map((entry) => {
      const path = join(entry.parentPath, entry.name);
      return [path, createHash('sha256').update(readFileSync(path)).digest('hex')];
    }),
  );
}

describe('one store, one sidecar', () => {
  it('[DU8] a second one exits with 3 and names the pid of the first, which goes on', async () => {
    const stage = await setStage(testScope());
    const { sidecar } = stage;
    const second = await runCommand([
      'serve',
      '--store',
      sidecar.store,
      '--listen',
      '127.0.0.1:0',
      '--',
      process.execPath,
      '-e',
      '0',
    ]);
    expect(second.code).toBe(3);
    expect(second.stderr).toContain(String(sidecar.pid));
    expect(second.stdout).toBe('');
    const turn = await stage.turn();
    await turn.end();
  });

  it('after kill -9 the lock is free at once', async () => {
    const stage = await setStage(testScope());
    await stage.sidecar.restart();
    const client = await stage.sidecar.unix();
    await client.initialize();
    await client.load(stage.sessionId);
  });
});

describe('read-only commands while the server runs', () => {
  it('[DU10] show what is there and write nothing', async () => {
    const stage = await setStage(testScope());
    const { sidecar, sessionId, life, agentSessionId, client } = stage;
    await storeAtRest(sidecar.store);
    const turn = await stage.turn('question');
    life.say(agentSessionId, 'answer');
    life.update(agentSessionId, { sessionUpdate: 'tool_call', toolCallId: 't', title: 'T', status: 'completed' });
    await turn.end();
    const before = dataOf(sidecar.store);
    expect(Object.keys(before).length).toBeGreaterThan(0);
    const store = ['--store', sidecar.store];
    const [sessions, show, events, history, approvals, missing] = await Promise.all([
      runCommand(['sessions', '--json', ...store]),
      runCommand(['show', sessionId, '--json', ...store]),
      runCommand(['events', sessionId, '--json', ...store]),
      runCommand(['history', sessionId, '--json', ...store]),
      runCommand(['approvals', '--json', ...store]),
      runCommand(['show', 'nobody', '--json', ...store]),
    ]);
    expect([sessions, show, events, history, approvals, missing].map(({ code }) => code)).toEqual([0, 0, 0, 0, 0, 1]);
    expect(JSON.parse(sessions.stdout)).toMatchObject([{ sessionId, cwd: '/tmp' }]);
    expect(JSON.parse(show.stdout)).toMatchObject({ sessionId });
    expect(history.stdout).toContain('"answer"');
    expect(JSON.parse(approvals.stdout)).toEqual([]);
    const lines = events.stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(lines.map((event) => event['seq'])).toEqual(lines.map((_, i) => i + 1));
    const types = lines.map((event) => event['type']);
    expect(types).toContain('session_created');
    expect(types.slice(types.indexOf('turn_started'))).toEqual(['turn_started', 'update', 'update', 'turn_ended']);
    expect(
      lines.filter((event) => event['type'] === 'update').map((event) => at(event, 'payload', 'sessionUpdate')),
    ).toEqual(['agent_message_chunk', 'tool_call']);
    expect(client.cursors.get(sessionId)).toBe(lines.at(-1)?.['eventId']);
    expect(dataOf(sidecar.store)).toEqual(before);
  });

  it('a store that is not there: exit 1 or 2 with a message, and no store is made', async () => {
    const dir = tempDir(testScope());
    const result = await runCommand(['sessions', '--store', join(dir, 'nothing')]);
    expect(result.code === 0 ? result.stdout : result.stderr).not.toContain(' at ');
    expect(readdirSync(dir)).toEqual([]);
  });
});

describe('exit codes of serve', () => {
  it('5 when the agent cannot be run, naming it', async () => {
    const store = join(tempDir(testScope()), 'store');
    const result = await runCommand(['serve', '--store', store, '--listen', '127.0.0.1:0', '--', '/no/such/agent']);
    expect(result.code).toBe(5);
    expect(result.stderr).toContain('/no/such/agent');
    expect(result.stdout).toBe('');
  });

  it('2 for a wrong option', async () => {
    const result = await runCommand(['serve', '--no-such-option', '--', 'true']);
    expect(result.code).toBe(2);
  });

  it('0 after SIGTERM; clients are closed with 1012 and stdout held the ready line alone', async () => {
    const stage = await setStage(testScope());
    const { sidecar } = stage;
    const socket = await sidecar.webSocket();
    await socket.initialize();
    expect(JSON.parse(sidecar.readyLine)).toMatchObject({ event: 'ready', pid: sidecar.pid, store: sidecar.store });
    expect(await sidecar.stop()).toEqual({ code: 0, signal: null });
    expect((await socket.untilClosed()).code).toBe(1012);
    await stage.client.untilClosed();
    expect(sidecar.stdout).toBe(`${sidecar.readyLine}\n`);
  });
});
