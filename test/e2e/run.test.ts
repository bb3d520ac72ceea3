/** `acp-sidecar run`: editors that start their agent and share it without knowing. */
import { once } from 'node:events';
import { cpSync, readdirSync, readFileSync, readlinkSync, symlinkSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { Readable, Writable } from 'node:stream';
import { client, ndJsonStream } from '@agentclientprotocol/sdk';
import { describe, expect, it } from 'vitest';
import { at } from '../support/json.ts';
import { RawClient } from '../support/raw-client.ts';
import { RunPlace } from '../support/run-editors.ts';
import { type Scope, testScope } from '../support/scope.ts';
import { ROOT, ScriptedAgent } from '../support/scripted-agent.ts';
import { SIDECAR_PROGRAM, runCommand } from '../support/sidecar.ts';
import { tempDir } from '../support/temp-dir.ts';
import { waitFor } from '../support/wait-for.ts';

const EXAMPLE_AGENT = [process.execPath, join(ROOT, 'dist/examples/agent.js')];
const WORD_MS = { EXAMPLE_AGENT_WORD_MS: '1' };
/** Twenty processes on a busy machine. */
const SLOW = { timeout: 180_000 };
const IDLE = ['--idle-exit', '200ms'];

async function editor(place: RunPlace): Promise<RawClient> {
  const raw = place.editor();
  await raw.initialize();
  return raw;
}

describe('run', () => {
  it('two editors share one agent: one prompts, the other lists, loads and sees it live', async () => {
    const scope = testScope();
    const agent = await ScriptedAgent.listen(scope);
    const place = new RunPlace(scope, agent.command);
    const first = await editor(place);
    const sessionId = await first.newSession();
    const life = await agent.life();
    const answer = first.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'hello' }] });
    const prompt = await life.saw('session/prompt');
    life.say('agent-session-1', 'one ');
    await first.until('the text', () => first.agentText(sessionId) === 'one ');
    const second = await editor(place);
    expect(at(await second.request('session/list'), 'sessions', 0, 'sessionId')).toBe(sessionId);
    await second.load(sessionId);
    life.say('agent-session-1', 'two');
    life.reply(prompt.message, { stopReason: 'end_turn' });
    await second.until('the rest', () => second.agentText(sessionId) === 'one two');
    expect(at((await answer).message.result, 'stopReason')).toBe('end_turn');
    expect(agent.lives.length).toBe(1);
    expect(place.daemons().length).toBe(1);
    for (const { text } of first.received) expect(JSON.parse(text)).toMatchObject({ jsonrpc: '2.0' });
    expect(first.received.filter(({ message }) => message.method?.startsWith('_sidecar/'))).toEqual([]);
  });

  it('[DM2] closing the editor ends neither the turn nor the agent; another one finds the whole turn', async () => {
    const scope = testScope();
    const agent = await ScriptedAgent.listen(scope);
    const place = new RunPlace(scope, agent.command, ['--idle-exit', '4s']);
    const first = await editor(place);
    const sessionId = await first.newSession();
    const life = await agent.life();
    void first.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'hello' }] });
    const prompt = await life.saw('session/prompt');
    life.say('agent-session-1', 'before ');
    await first.until('the text', () => first.agentText(sessionId) === 'before ');
    first.close();
    await waitFor('the bridge to leave', () => place.bridges().length === 0);
    life.say('agent-session-1', 'after');
    life.reply(prompt.message, { stopReason: 'end_turn' });
    const second = await editor(place);
    await second.load(sessionId);
    expect(second.agentText(sessionId)).toBe('before after');
    expect(life.closed).toBe(false);
    second.close();
    await place.allGone();
    expect(place.sockets()).toEqual([]);
  });

  it('[DM5] gives the agent the environment of the run that started the daemon, and the home directory', async () => {
    const scope = testScope();
    const agent = await ScriptedAgent.listen(scope);
    const place = new RunPlace(scope, agent.command, [], { COLOR_OF_THE_FIRST: 'green' });
    await editor(place);
    const life = await agent.life();
    expect(life.env).toMatchObject({ COLOR_OF_THE_FIRST: 'green' });
    expect(readlinkSync(`/proc/${life.pid}/cwd`)).toBe(homedir());
  });

  it('[DM3] an editor that leaves while the daemon is starting leaves nothing behind', async () => {
    const place = new RunPlace(testScope(), EXAMPLE_AGENT, IDLE);
    const child = place.spawn();
    child.stdin?.end();
    await once(child, 'exit');
    await place.allGone();
    expect(place.sockets()).toEqual([]);
    const left = readdirSync(join(place.dir, 'state'), { recursive: true, encoding: 'utf8' });
    expect(left.filter((name) => /(owner\.json|\.sock|agents\/.+)$/.test(name))).toEqual([]);
  });

  it('says what is wrong when the agent cannot be run, and exits with code 5', async () => {
    const place = new RunPlace(testScope(), ['/nowhere/agent']);
    const child = place.spawn();
    let out = '';
    let err = '';
    child.stdout?.on('data', (bytes: Buffer) => (out += bytes.toString()));
    child.stderr?.on('data', (bytes: Buffer) => (err += bytes.toString()));
    child.stdin?.write('{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n');
    const code = await new Promise((resolve) => child.once('exit', resolve));
    expect(code).toBe(5);
    expect(JSON.parse(out)).toMatchObject({ id: 1, error: { code: -32010, data: { kind: 'agent_unavailable' } } });
    expect(out).toContain('no such command');
    expect(err).toContain('"/nowhere/agent" cannot be run');
    await place.allGone();
  });

  it('[ER3] a store that another agent has: that is said at once, with whose it is, and the exit code is 3', async () => {
    const scope = testScope();
    const store = join(tempDir(scope), 'store');
    const owner = new RunPlace(scope, (await ScriptedAgent.listen(scope)).command, ['--store', store]);
    await editor(owner);
    const other = await ScriptedAgent.listen(scope);
    const place = new RunPlace(scope, other.command, ['--store', store]);
    const child = place.spawn();
    let out = '';
    child.stdout?.on('data', (bytes: Buffer) => (out += bytes.toString()));
    child.stdin?.write('{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n');
    const since = performance.now();
    expect(await new Promise((resolve) => child.once('exit', resolve))).toBe(3);
    // Far from the 30 s that a start may take.
    expect(performance.now() - since).toBeLessThan(20_000);
    expect(JSON.parse(out)).toMatchObject({ id: 1, error: { data: { kind: 'agent_unavailable' } } });
    expect(out).toContain(`${store} is in use by process ${owner.daemons()[0]}`);
    expect(out).toContain('acp-sidecar stop');
    expect(other.lives).toEqual([]);
  });

  it("the ACP SDK's stdio client drives it unchanged", async () => {
    const place = new RunPlace(testScope(), EXAMPLE_AGENT, [], WORD_MS);
    const child = place.spawn();
    if (!child.stdin || !child.stdout) throw new Error('no pipes');
    const stream = ndJsonStream(
      Writable.toWeb(child.stdin),
      Readable.toWeb(child.stdout) as ReadableStream<Uint8Array>,
    );
    let text = '';
    let asked = 0;
    const app = client({ name: 'sdk' })
      .onNotification('session/update', ({ params: { update } }) => {
        if (update.sessionUpdate === 'agent_message_chunk' && update.content.type === 'text')
          text += update.content.text;
      })
      .onRequest('session/request_permission', ({ params }) => {
        asked++;
        return { outcome: { outcome: 'selected', optionId: params.options[0]?.optionId ?? '' } };
      });
    await app.connectWith(stream, async (agent) => {
      await agent.request('initialize', { protocolVersion: 1, clientCapabilities: {} });
      const { sessionId } = await agent.request('session/new', { cwd: '/tmp', mcpServers: [] });
      const prompt = [{ type: 'text' as const, text: 'use the tool' }];
      expect(await agent.request('session/prompt', { sessionId, prompt })).toMatchObject({ stopReason: 'end_turn' });
    });
    expect(asked).toBe(1);
    expect(text).toContain('By noon the fog is gone');
    child.stdin.end();
  });
});

describe('status and stop', () => {
  it('show the daemon of an agent and end it; without one they say so', async () => {
    const scope = testScope();
    const agent = await ScriptedAgent.listen(scope);
    const place = new RunPlace(scope, agent.command);
    const raw = await editor(place);
    await raw.newSession();
    const status = await runCommand(['status', '--json', '--', ...agent.command], place.own());
    expect(JSON.parse(status.stdout)).toMatchObject({
      running: true,
      clients: 1,
      sessions: 1,
      pid: place.daemons()[0],
    });
    raw.close();
    await waitFor('the bridge to leave', () => place.bridges().length === 0);
    expect((await runCommand(['stop', '--', ...agent.command], place.own())).code).toBe(0);
    await place.allGone();
    expect(place.sockets()).toEqual([]);
    expect((await runCommand(['status', '--', ...agent.command], place.own())).code).toBe(1);
  });
});

describe('one daemon', () => {
  async function twentyEditors(place: RunPlace): Promise<RawClient[]> {
    const editors = await Promise.all(
      Array.from({ length: 20 }, async () => {
        const raw = place.editor();
        await raw.request('initialize', { protocolVersion: 1 });
        await raw.newSession();
        return raw;
      }),
    );
    expect(place.daemons().length).toBe(1);
    return editors;
  }

  it('[DM1] [DM3] 20 editors that start at once get one, and nothing is left when they are gone', SLOW, async () => {
    const scope = testScope();
    const agent = await ScriptedAgent.listen(scope);
    const place = new RunPlace(scope, agent.command, IDLE);
    const editors = await twentyEditors(place);
    expect(agent.lives.length).toBe(1);
    for (const raw of editors) raw.close();
    await place.allGone();
    expect(place.sockets()).toEqual([]);
  });

  it('[DM1] the same when the last daemon was killed with -9 and its socket lies there', SLOW, async () => {
    const scope = testScope();
    const agent = await ScriptedAgent.listen(scope);
    const place = new RunPlace(scope, agent.command, IDLE);
    const before = await editor(place);
    const [daemon = 0] = place.daemons();
    for (const bridge of place.bridges()) process.kill(bridge, 'SIGKILL');
    process.kill(daemon, 'SIGKILL');
    await before.untilClosed();
    await place.allGone();
    expect(place.sockets().filter((name) => name.endsWith('.sock')).length).toBe(1);
    const editors = await twentyEditors(place);
    for (const raw of editors) raw.close();
    await place.allGone();
    expect(place.sockets()).toEqual([]);
  });

  it('[DM1] is started again under editors when it is killed with -9: their sessions go on', async () => {
    const scope = testScope();
    const agent = await ScriptedAgent.listen(scope);
    const place = new RunPlace(scope, agent.command);
    const editors = [await editor(place), await editor(place)];
    const [first] = editors;
    if (!first) throw new Error('no editor');
    const sessionId = await first.newSession();
    const life = await agent.life();
    const answer = first.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'hello' }] });
    await life.saw('session/prompt');
    process.kill(place.daemons()[0] ?? 0, 'SIGKILL');
    expect(at((await answer).message.error, 'data', 'kind')).toBe('interrupted');
    for (const raw of editors)
      expect(at(await raw.request('session/list'), 'sessions', 0, 'sessionId')).toBe(sessionId);
    expect(place.daemons().length).toBe(1);
    await agent.life(1);
  });

  it('[DM4] an older one that has nothing to do is replaced by a newer run, a newer one is not', async () => {
    const scope = testScope();
    const agent = await ScriptedAgent.listen(scope);
    const place = new RunPlace(scope, agent.command);
    const old = await editor(place);
    const sessionId = await old.newSession();
    const [daemon = 0] = place.daemons();
    const newer = RawClient.direct(
      scope,
      place.command.map((word) => (word === SIDECAR_PROGRAM ? program(scope, '9.0.0') : word)),
    );
    await newer.initialize();
    await waitFor('another daemon', () => place.daemons().length === 1 && place.daemons()[0] !== daemon);
    // The old editor's bridge is on the new daemon, without having noticed.
    expect(at(await old.request('session/list'), 'sessions', 0, 'sessionId')).toBe(sessionId);
    const [replaced] = place.daemons();
    const again = await editor(place);
    expect(at(await again.request('session/list'), 'sessions', 0, 'sessionId')).toBe(sessionId);
    expect(place.daemons()).toEqual([replaced]);
  });

  it('[DM4] an older one in the middle of a turn is not replaced', async () => {
    const scope = testScope();
    const agent = await ScriptedAgent.listen(scope);
    const place = new RunPlace(scope, agent.command);
    const old = await editor(place);
    const sessionId = await old.newSession();
    const life = await agent.life();
    const answer = old.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'hello' }] });
    const prompt = await life.saw('session/prompt');
    const daemons = place.daemons();
    const newer = RawClient.direct(
      scope,
      place.command.map((word) => (word === SIDECAR_PROGRAM ? program(scope, '9.0.0') : word)),
    );
    await newer.initialize();
    await newer.load(sessionId);
    expect(place.daemons()).toEqual(daemons);
    life.reply(prompt.message, { stopReason: 'end_turn' });
    expect(at((await answer).message.result, 'stopReason')).toBe('end_turn');
  });
});

/** The same program under another version. */
function program(scope: Scope, version: string): string {
  const dir = tempDir(scope);
  cpSync(join(ROOT, 'bin'), join(dir, 'bin'), { recursive: true });
  cpSync(join(ROOT, 'dist/bin'), join(dir, 'dist/bin'), { recursive: true });
  symlinkSync(join(ROOT, 'node_modules'), join(dir, 'node_modules'));
  writeFileSync(join(dir, 'package.json'), '{"type":"module"}');
  for (const name of readdirSync(join(dir, 'dist/bin'))) {
    const path = join(dir, 'dist/bin', name);
    writeFileSync(path, readFileSync(path, 'utf8').replace(/VERSION = "\d+\.\d+\.\d+"/, `VERSION = "${version}"`));
  }
  return join(dir, 'bin/acp-sidecar.cjs');
}

describe('no process is left behind', () => {
  it.each([
    ['the editor is killed', (_place: RunPlace, raw: RawClient) => raw.transport.close()],
    ['the bridge is killed', (place: RunPlace) => place.bridges().forEach((pid) => process.kill(pid, 'SIGKILL'))],
  ])('[DM3] %s, with an agent that ignores the end of stdin and has a grandchild', async (_how, end) => {
    const scope = testScope();
    const agent = await ScriptedAgent.listen(scope);
    const place = new RunPlace(scope, agent.command, IDLE);
    const raw = await editor(place);
    const life = await agent.life();
    life.beStubborn();
    life.startChild();
    await waitFor('the grandchild', () => place.processes().length >= 5);
    end(place, raw);
    await place.allGone();
    expect(place.sockets()).toEqual([]);
  });

  it('[AG11] the daemon and the bridges are killed with -9, and no other one is started', async () => {
    const scope = testScope();
    const agent = await ScriptedAgent.listen(scope);
    const place = new RunPlace(scope, agent.command);
    await editor(place);
    const life = await agent.life();
    life.beStubborn();
    life.startChild();
    await waitFor('the grandchild', () => place.processes().length >= 5);
    for (const pid of [...place.bridges(), ...place.daemons()]) process.kill(pid, 'SIGKILL');
    await place.allGone();
  });

  it('the daemon is killed with -9: the next one ends what it left', async () => {
    const scope = testScope();
    const agent = await ScriptedAgent.listen(scope);
    const place = new RunPlace(scope, agent.command, IDLE);
    const raw = await editor(place);
    const life = await agent.life();
    life.beStubborn();
    life.startChild();
    await waitFor('the grandchild', () => place.processes().length >= 5);
    process.kill(place.daemons()[0] ?? 0, 'SIGKILL');
    await agent.life(1);
    await waitFor('the first agent to end', () => life.closed);
    raw.close();
    await place.allGone();
    expect(place.sockets()).toEqual([]);
  });
});
