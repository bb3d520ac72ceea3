/** `--trace`, and `replay-trace` as an agent. */
import { existsSync, lstatSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { at, textAt } from '../support/json.ts';
import type { RawClient } from '../support/raw-client.ts';
import { answerCard, askPermission, card, choose } from '../support/room.ts';
import { type Scope, testScope } from '../support/scope.ts';
import { type AgentLife, ROOT, ScriptedAgent } from '../support/scripted-agent.ts';
import { runCommand, Sidecar, SIDECAR_PROGRAM } from '../support/sidecar.ts';
import { tempDir } from '../support/temp-dir.ts';
import { waitFor } from '../support/wait-for.ts';

interface Traced {
  readonly time: number;
  readonly peer: 'agent' | 'client';
  readonly id: number;
  readonly to?: string;
  readonly event?: string;
  readonly message?: Readonly<Record<string, unknown>>;
  readonly raw?: string;
}

function linesOf(file: string): string[] {
  return readFileSync(file, 'utf8').trimEnd().split('\n');
}

function tracedOf(file: string): Traced[] {
  return linesOf(file)
    .slice(1)
    .map((line) => JSON.parse(line) as Traced);
}

/** The text of the messages of one peer in one direction, as they stand in the file. */
function textsTo(file: string, peer: string, to: string): string[] {
  const start = new RegExp(`^\\{"time":\\d+,"peer":"${peer}","id":1,"to":"${to}","message":`);
  return linesOf(file)
    .filter((line) => start.test(line))
    .map((line) => line.replace(start, '').slice(0, -1));
}

interface Recorded {
  readonly file: string;
  readonly agent: ScriptedAgent;
  readonly life: AgentLife;
  readonly sidecar: Sidecar;
  readonly client: RawClient;
  readonly sessionId: string;
}

async function record(
  scope: Scope,
  args: readonly string[] = [],
  transport: 'unix' | 'webSocket' = 'unix',
): Promise<Recorded> {
  const agent = await ScriptedAgent.listen(scope);
  const file = join(tempDir(scope), 'trace.ndjson');
  const sidecar = await Sidecar.start(scope, {
    agent: agent.command,
    args: ['--trace', file, '--drain', '50ms', ...args],
  });
  const client = await sidecar[transport]();
  await client.initialize();
  const sessionId = await client.newSession('/tmp', {
    mcpServers: [
      { name: 'tools', command: 'PLANTED-command', args: ['PLANTED'], env: [{ name: 'KEY', value: 'PLANTED-env' }] },
    ],
  });
  return { file, agent, life: await agent.life(), sidecar, client, sessionId };
}

/** A turn with text, a tool that asks, numbers that JSON.parse would change, and a question. */
async function play(client: RawClient, sessionId: string, life: AgentLife | undefined): Promise<unknown> {
  const answer = client.prompt(sessionId, 'go');
  if (life) {
    const { message } = await life.saw('session/prompt');
    life.say('agent-session-1', 'Hello ');
    life.say('agent-session-1', 'wörld \u{1f600}');
    life.line(
      '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"agent-session-1","update":{"sessionUpdate":"tool_call","toolCallId":"c","title":"t","rawInput":{"big":12345678901234567890,"one":1.0}}}}',
    );
    const question = askPermission(life, 'agent-session-1', { toolCallId: 'c' });
    answerCard(client, await card(client, sessionId), choose('yes'));
    await life.answerTo(question);
    life.say('agent-session-1', 'done');
    life.reply(message, { stopReason: 'end_turn' });
  } else answerCard(client, await card(client, sessionId), choose('yes'));
  return answer;
}

/** What a client saw of a session, without the ids that differ from one log to the other. */
function shown(client: RawClient, sessionId: string): unknown[] {
  let text = '';
  const seen: unknown[] = [];
  for (const { message } of client.updates(sessionId)) {
    const update = at(message, 'params', 'update');
    if (textAt(update, 'sessionUpdate') === 'agent_message_chunk') text += textAt(update, 'content', 'text');
    else {
      seen.push(text, update);
      text = '';
    }
  }
  return [...seen, text];
}

describe('--trace', () => {
  it.each(['unix', 'webSocket'] as const)(
    '[OB4] holds every message of client and agent in both directions, as it went over the wire (%s)',
    async (transport) => {
      const { file, life, client, sessionId, sidecar } = await record(testScope(), [], transport);
      await play(client, sessionId, life);
      client.send('this is not JSON');
      await client.until('the error', ({ message }) => at(message, 'error', 'code') === -32700);
      life.line('agent noise');
      await waitFor('the noise to be traced', () => readFileSync(file, 'utf8').includes('agent noise'));
      client.close();
      await sidecar.stop();
      const received = life.received.map(({ text }) => text);
      const toAgent = textsTo(file, 'agent', 'agent');
      expect(toAgent.map((text) => text.replace(/"mcpServers":\[.*?\](?=[,}])/, '"mcpServers":[]'))).toEqual(
        received.map((text) => text.replace(/"mcpServers":\[.*\](?=[,}])/, '"mcpServers":[]')),
      );
      const fromAgent = textsTo(file, 'agent', 'sidecar');
      expect(fromAgent.join('\n')).toContain('"big":12345678901234567890,"one":1.0');
      expect(fromAgent.join('\n')).toContain('wörld \u{1f600}');
      const toClient = textsTo(file, 'client', 'client');
      expect(toClient).toEqual(client.received.map(({ text }) => text));
      const all = tracedOf(file);
      expect(all.filter(({ to, peer }) => peer === 'client' && to === 'sidecar').map(({ raw }) => raw)).toContain(
        'this is not JSON',
      );
      expect(all.filter(({ to, peer }) => peer === 'agent' && to === 'sidecar').map(({ raw }) => raw)).toContain(
        'agent noise',
      );
      const lives = (of: string): unknown[] => all.flatMap(({ peer, event }) => (peer === of && event ? [event] : []));
      expect(lives('agent')).toEqual(['started', 'exited']);
      expect(lives('client')).toEqual(['opened', 'closed']);
    },
  );

  it('[OB4] holds no credentials, and the names of MCP servers only', async () => {
    const { file, life, client, sessionId, sidecar } = await record(testScope(), ['--redact', 'hunter\\d']);
    for (const [method, params] of [
      ['authenticate', { methodId: 'key', _meta: { key: 'PLANTED-auth' } }],
      ['providers/set', { id: 'openai', key: 'PLANTED-provider' }],
    ] as const) {
      const asked = client.ask(method, params);
      const { message } = await life.saw(method);
      life.reply(message, { granted: 'PLANTED-answer' });
      await asked;
    }
    const answer = client.prompt(sessionId, 'my password is hunter2', {
      _meta: { apiKey: 'PLANTED-"key', access_token: 'PLANTED' },
    });
    const prompt = await life.saw('session/prompt');
    life.send({
      id: 9,
      method: 'terminal/create',
      params: { sessionId: 'agent-session-1', command: 'ls', env: [{ name: 'A', value: 'PLANTED-env' }] },
    });
    life.reply(prompt.message, { stopReason: 'end_turn' });
    await answer;
    await sidecar.stop();
    const text = readFileSync(file, 'utf8');
    expect([...text.matchAll(/PLANTED[^"]*/g)].map(String)).toEqual([]);
    expect(text).not.toContain('hunter2');
    expect(text).toContain('my password is [redacted]');
    expect(text).toContain('"mcpServers":[{"name":"tools","redacted":true}]');
    expect(tracedOf(file).length).toBeGreaterThan(10);
  });

  it('[OB4] is a private file, and one that was there is kept as FILE.1', async () => {
    const scope = testScope();
    const { file, sidecar } = await record(scope);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    const before = readFileSync(file, 'utf8');
    await sidecar.kill();
    const whole = readFileSync(file, 'utf8');
    expect(whole.startsWith(before)).toBe(true);
    await sidecar.start();
    expect(readFileSync(`${file}.1`, 'utf8')).toBe(whole);
    expect(JSON.parse(linesOf(file)[0] ?? '')).toMatchObject({ trace: 1, part: 1, pid: sidecar.pid });
  });

  it('[OB4] a file that cannot be made is a usage error, and nothing else is written through it', async () => {
    const scope = testScope();
    const dir = tempDir(scope);
    const victim = join(dir, 'victim');
    writeFileSync(victim, 'precious');
    symlinkSync(victim, join(dir, 'link'));
    for (const [file, why] of [
      [join(dir, 'link'), 'is not a file'],
      [dir, 'is not a file'],
      [join(dir, 'no/such/dir'), 'ENOENT'],
    ] as const) {
      const result = await runCommand(['serve', '--store', join(dir, 's'), '--trace', file, '--', 'true']);
      expect(result.code, file).toBe(2);
      expect(result.stderr, file).toContain('--trace');
      expect(result.stderr, file).toContain(why);
    }
    expect(readFileSync(victim, 'utf8')).toBe('precious');
    expect(lstatSync(join(dir, 'link')).isSymbolicLink()).toBe(true);
  });

  it('[OB4] is off unless it is asked for', async () => {
    const scope = testScope();
    const agent = await ScriptedAgent.listen(scope);
    const sidecar = await Sidecar.start(scope, { agent: agent.command });
    const client = await sidecar.unix();
    await client.initialize();
    expect(existsSync(join(sidecar.store, 'trace.ndjson'))).toBe(false);
    expect(sidecar.stderr).not.toContain('recorded');
  });
});

describe('replay-trace', () => {
  it('[OB4] as an agent gives a client the same session', async () => {
    const scope = testScope();
    const { file, life, client, sessionId, sidecar } = await record(scope);
    const result = await play(client, sessionId, life);
    await sidecar.stop();
    const replayed = await Sidecar.start(scope, {
      agent: [process.execPath, SIDECAR_PROGRAM, 'replay-trace', file],
      args: ['--drain', '50ms'],
    });
    const again = await replayed.unix();
    // Another client with other ids, which asks for more on its way.
    await again.initialize();
    await again.ask('session/list', {}, 'other-id');
    const sameId = await again.newSession();
    expect(sameId).toBe(sessionId);
    const unknown = await again.ask('_not/recorded', { sessionId });
    expect(unknown.message.error).toMatchObject({ code: -32601 });
    expect(at(await play(again, sessionId, undefined), 'stopReason')).toBe(at(result, 'stopReason'));
    expect(shown(again, sessionId)).toEqual(shown(client, sessionId));
    expect(JSON.stringify(shown(again, sessionId))).toContain('wörld');
    const raw = again.received.map(({ text }) => text).join('\n');
    expect(raw).toContain('"big":12345678901234567890,"one":1.0');
  });

  it('[OB4] dies where the agent died while the sidecar went on, and plays a later life when asked', async () => {
    const scope = testScope();
    const { file, agent, life, client, sessionId, sidecar } = await record(scope);
    const cut = client.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'go' }] });
    await life.saw('session/prompt');
    life.say('agent-session-1', 'half a ');
    await client.until('the text', ({ text }) => text.includes('half a '));
    life.exit(1);
    await cut;
    void client.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'again' }] });
    await (await agent.life(1)).saw('initialize');
    await sidecar.stop();
    const replayed = await Sidecar.start(scope, { agent: [process.execPath, SIDECAR_PROGRAM, 'replay-trace', file] });
    const again = await replayed.unix();
    await again.initialize();
    await again.newSession();
    const answer = await again.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'go' }] });
    expect(answer.message.error).toMatchObject({ data: { kind: 'interrupted' } });
    expect(again.agentText(sessionId)).toBe('half a ');
    const none = await runCommand(['replay-trace', file, '--life', '9']);
    expect(none).toMatchObject({ code: 2 });
    expect(none.stderr).toContain('it has: 1, 2');
  });

  it('prints a trace for people', async () => {
    const scope = testScope();
    const { file, life, client, sessionId, sidecar } = await record(scope);
    await play(client, sessionId, life);
    await sidecar.stop();
    const { stdout, code } = await runCommand(['replay-trace', file, '--print']);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^\d\d:\d\d:\d\d\.\d{3} {2}client 1 {3}-> session\/prompt \S+ {2}\d+ B$/m);
    expect(stdout).toMatch(/agent 1 {4}-> session\/update agent_message_chunk "wörld .*"/);
    expect(stdout).toMatch(/agent 1 {4}-> session\/request_permission "question-\d+"/);
    expect(stdout).toMatch(/client 1 {3}<- result of \S+/);
    // oxlint-disable-next-line no-control-regex -- a pipe gets no colour
    expect(stdout).not.toMatch(/\x1b/);
  });

  it('says so when the file is missing, is no trace or is of a newer version', async () => {
    const dir = tempDir(testScope());
    const other = join(dir, 'other');
    writeFileSync(other, '{"a":1}\n');
    const newer = join(dir, 'newer');
    writeFileSync(newer, '{"trace":2}\n');
    for (const [file, why] of [
      [join(dir, 'none'), 'cannot be read: ENOENT'],
      [other, 'is not a trace'],
      [newer, 'was written by a newer version'],
      [join(ROOT, 'package.json'), 'is not a trace'],
    ] as const) {
      const result = await runCommand(['replay-trace', file]);
      expect(result.code).toBe(1);
      expect(result.stderr).toContain(why);
    }
  });
});
