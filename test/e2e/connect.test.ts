/** `acp-sidecar connect`: an editor's stdio to a sidecar somewhere else. */
import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable, Writable } from 'node:stream';
import { client, ndJsonStream } from '@agentclientprotocol/sdk';
import { describe, expect, it } from 'vitest';
import { at, type Message } from '../support/json.ts';
import { NetworkProxy } from '../support/network-proxy.ts';
import { RawClient } from '../support/raw-client.ts';
import { type Scope, testScope } from '../support/scope.ts';
import { ROOT, ScriptedAgent, streamAgentCommand } from '../support/scripted-agent.ts';
import { SIDECAR_PROGRAM, Sidecar } from '../support/sidecar.ts';
import type { StreamOrder } from '../support/stream-order.ts';
import { tempDir } from '../support/temp-dir.ts';
import { FIRST_CERTIFICATE } from '../support/test-certificates.ts';
import { waitFor } from '../support/wait-for.ts';

const EXAMPLE_AGENT = [process.execPath, join(ROOT, 'dist/examples/agent.js')];
const QUICK = ['--heartbeat', '200ms'];
const INITIALIZE = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n';

function connectTo(scope: Scope, ...args: string[]): RawClient {
  return RawClient.direct(scope, [process.execPath, SIDECAR_PROGRAM, 'connect', ...args]);
}

/** Runs `connect` with something on its stdin, until it ends by itself. */
async function connectOnce(
  args: readonly string[],
  input: string,
  endInput: boolean,
  env: object = {},
): Promise<{ code: number | null; out: string; err: string }> {
  const child = spawn(process.execPath, [SIDECAR_PROGRAM, 'connect', ...args], { env: { ...process.env, ...env } });
  let out = '';
  let err = '';
  child.stdout.on('data', (bytes: Buffer) => (out += bytes.toString()));
  child.stderr.on('data', (bytes: Buffer) => (err += bytes.toString()));
  child.stdin.on('error', () => undefined);
  if (endInput) child.stdin.end(input);
  else child.stdin.write(input);
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
  return { code, out, err };
}

describe('connect', () => {
  it('by WebSocket and by Unix socket: what one sends the other sees, and stdout is ACP only', async () => {
    const scope = testScope();
    const agent = await ScriptedAgent.listen(scope);
    const sidecar = await Sidecar.start(scope, { agent: agent.command });
    const first = connectTo(scope, sidecar.wsUrl);
    await first.initialize();
    const sessionId = await first.newSession();
    const second = connectTo(scope, sidecar.socketPath);
    await second.initialize();
    await second.load(sessionId);
    const life = await agent.life();
    const raw =
      '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"agent-session-1","update":{"sessionUpdate":"_x","n":9007199254740993,"s":"\\u00e9 é"}}}';
    life.line(raw);
    for (const one of [first, second]) {
      const got = await one.saw('session/update');
      expect(got.text).toContain('"n":9007199254740993,"s":"\\u00e9 é"');
    }
  });

  it("the ACP SDK's stdio client drives it unchanged", async () => {
    const scope = testScope();
    const sidecar = await Sidecar.start(scope, { agent: EXAMPLE_AGENT, env: { EXAMPLE_AGENT_WORD_MS: '1' } });
    const child = spawn(process.execPath, [SIDECAR_PROGRAM, 'connect', sidecar.wsUrl], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    const stream = ndJsonStream(
      Writable.toWeb(child.stdin),
      Readable.toWeb(child.stdout) as ReadableStream<Uint8Array>,
    );
    const app = client({ name: 'sdk' })
      .onNotification('session/update', () => undefined)
      .onRequest('session/request_permission', ({ params }) => ({
        outcome: { outcome: 'selected', optionId: params.options[0]?.optionId ?? '' },
      }));
    await app.connectWith(stream, async (agent) => {
      await agent.request('initialize', { protocolVersion: 1, clientCapabilities: {} });
      const { sessionId } = await agent.request('session/new', { cwd: '/tmp', mcpServers: [] });
      const prompt = [{ type: 'text' as const, text: 'use the tool' }];
      expect(await agent.request('session/prompt', { sessionId, prompt })).toMatchObject({ stopReason: 'end_turn' });
    });
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.stdin.end();
    expect(await ended).toBe(0);
  });

  it('[RC7] a half-open connection is found by both sides in bounded time, and the turn goes on', async () => {
    const scope = testScope();
    const agent = await ScriptedAgent.listen(scope);
    const sidecar = await Sidecar.start(scope, { agent: agent.command, args: QUICK });
    const network = await NetworkProxy.listen(scope, Number(new URL(sidecar.wsUrl).port));
    const editor = connectTo(scope, `ws://127.0.0.1:${network.port}`, ...QUICK);
    await editor.initialize();
    const sessionId = await editor.newSession();
    const life = await agent.life();
    const answer = editor.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'hi' }] });
    const prompt = await life.saw('session/prompt');
    life.say('agent-session-1', 'one ');
    await editor.until('the text', () => editor.agentText(sessionId) === 'one ');
    const other = await sidecar.unix();
    await other.initialize();
    await other.load(sessionId);
    const before = performance.now();
    expect(network.halfOpen()).toBe(1);
    life.say('agent-session-1', 'two ');
    await other.until('the other client, at once', () => other.agentText(sessionId) === 'one two ');
    await editor.until('the rest', () => editor.agentText(sessionId) === 'one two ');
    expect(performance.now() - before).toBeLessThan(8000);
    life.reply(prompt.message, { stopReason: 'end_turn' });
    expect(at((await answer).message.result, 'stopReason')).toBe('end_turn');
  });

  it('[RC5] kill -9 of the sidecar in the middle of a message: the client is told what was not recorded', async () => {
    const scope = testScope();
    const agent = await ScriptedAgent.listen(scope);
    const sidecar = await Sidecar.start(scope, { agent: agent.command });
    const network = await NetworkProxy.listen(scope, Number(new URL(sidecar.wsUrl).port));
    const editor = connectTo(scope, `ws://127.0.0.1:${network.port}`);
    await editor.initialize();
    const sessionId = await editor.newSession();
    const life = await agent.life();
    const answer = editor.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'hi' }] });
    await life.saw('session/prompt');
    life.say('agent-session-1', 'never recorded');
    await editor.until('the text', () => editor.agentText(sessionId) === 'never recorded');
    await sidecar.kill();
    await sidecar.start();
    network.targetPort = Number(new URL(sidecar.wsUrl).port);
    expect(at((await answer).message.error, 'data')).toMatchObject({
      kind: 'interrupted',
      code: 'PROMPT_OUTCOME_UNKNOWN',
    });
    expect(editor.agentText(sessionId)).toContain('its last 14 characters are not in the session');
    expect(editor.agentText(sessionId).match(/never recorded/g)?.length).toBe(1);
    const again = editor.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'again' }] });
    const next = await (await agent.life(1)).saw('session/prompt');
    agent.lives[1]?.reply(next.message, { stopReason: 'end_turn' });
    expect(at((await again).message.result, 'stopReason')).toBe('end_turn');
  });

  it('[RC8] an unknown session is the error of ACP', async () => {
    const scope = testScope();
    const sidecar = await Sidecar.start(scope, { agent: EXAMPLE_AGENT });
    const editor = connectTo(scope, sidecar.wsUrl);
    await editor.initialize();
    const { message } = await editor.ask('session/load', { sessionId: 'nowhere', cwd: '/tmp', mcpServers: [] });
    expect(message.error).toMatchObject({ code: -32002, data: { sessionId: 'nowhere' } });
  });

  it('[RC8] a refused token is an error that says so, and the right one is not refused', async () => {
    const scope = testScope();
    const file = join(tempDir(scope), 'tokens');
    writeFileSync(file, '# ours\nright-token controller\n');
    const sidecar = await Sidecar.start(scope, { agent: EXAMPLE_AGENT, args: ['--token-file', file] });
    const wrong = await connectOnce([sidecar.wsUrl], INITIALIZE, false, { ACP_SIDECAR_TOKEN: 'wrong' });
    expect(wrong.code).toBe(1);
    expect(JSON.parse(wrong.out)).toMatchObject({ id: 1, error: { code: -32010, data: { kind: 'refused' } } });
    expect(wrong.out).toContain('401');
    expect(wrong.out + wrong.err).not.toContain('wrong"');
    const right = await connectOnce([sidecar.wsUrl, '--token-file', file], INITIALIZE, true);
    expect(right.code).toBe(0);
    expect(JSON.parse(right.out)).toMatchObject({ id: 1, result: { protocolVersion: 1 } });
  });

  it('[RC8] nobody there: it is tried for a while, then it is an error', async () => {
    const scope = testScope();
    const network = await NetworkProxy.listen(scope, 1);
    network.refusing = true;
    const { code, out, err } = await connectOnce(
      [`ws://127.0.0.1:${network.port}/acp`, '--give-up', '300ms'],
      INITIALIZE,
      false,
    );
    expect(code).toBe(1);
    expect(JSON.parse(out)).toMatchObject({ id: 1, error: { data: { kind: 'unreachable' } } });
    expect(err).toContain('trying again');
  });

  it('[RC8] a certificate of an unknown authority: it says so, and what trusts it; then it works', async () => {
    const scope = testScope();
    const [cert, key] = [join(tempDir(scope), 'cert.pem'), join(tempDir(scope), 'key.pem')];
    writeFileSync(cert, FIRST_CERTIFICATE.cert);
    writeFileSync(key, FIRST_CERTIFICATE.key, { mode: 0o600 });
    const args = ['--tls-cert', cert, '--tls-key', key];
    const sidecar = await Sidecar.start(scope, { agent: EXAMPLE_AGENT, args });
    const [url = ''] = (JSON.parse(sidecar.readyLine) as { endpoints: string[] }).endpoints;
    const unknown = await connectOnce([url, '--give-up', '300ms'], INITIALIZE, false);
    expect(unknown.code).toBe(1);
    expect(unknown.out).toContain('NODE_EXTRA_CA_CERTS');
    const trusted = await connectOnce([url], INITIALIZE, true, { NODE_EXTRA_CA_CERTS: cert });
    expect(JSON.parse(trusted.out)).toMatchObject({ id: 1, result: { protocolVersion: 1 } });
  });

  it.each([['http://x'], ['wss://'], ['ws://127.0.0.1:1', '--heartbeat', 'soon']])(
    '%s is refused as usage',
    async (...args) => {
      expect((await connectOnce(args, '', true)).code).toBe(2);
    },
  );

  it('the sidecar stops in good order and comes back: the editor goes on', async () => {
    const scope = testScope();
    const agent = await ScriptedAgent.listen(scope);
    const sidecar = await Sidecar.start(scope, { agent: agent.command });
    const editor = connectTo(scope, `unix:${sidecar.socketPath}`);
    await editor.initialize();
    const sessionId = await editor.newSession();
    await sidecar.stop();
    const listed = editor.ask('session/list');
    await sidecar.start();
    expect(at((await listed).message.result, 'sessions', 0, 'sessionId')).toBe(sessionId);
    editor.close();
    await waitFor('the editor to end', () => editor.closed);
  });
});

describe('a sidecar that leaves', () => {
  it('[RC2] a prompt that comes while it waits for another turn runs in the next one', async () => {
    const scope = testScope();
    const agent = await ScriptedAgent.listen(scope);
    const sidecar = await Sidecar.start(scope, { agent: agent.command, args: ['--drain', '1s'] });
    const editor = connectTo(scope, `unix:${sidecar.socketPath}`);
    await editor.initialize();
    const [long, short] = [await editor.newSession(), await editor.newSession()];
    const life = await agent.life();
    void editor.ask('session/prompt', { sessionId: long, prompt: [{ type: 'text', text: 'long' }] });
    await life.saw('session/prompt');
    const stopped = sidecar.stop();
    const readyz = sidecar.wsUrl.replace('ws:', 'http:').replace('/acp', '/readyz');
    await waitFor('it to leave', async () => (await fetch(readyz)).status !== 200);
    const answer = editor.ask('session/prompt', { sessionId: short, prompt: [{ type: 'text', text: 'short' }] });
    await stopped;
    await sidecar.start();
    const next = await agent.life(1);
    const prompt = await next.saw('session/prompt');
    next.reply(prompt.message, { stopReason: 'end_turn' });
    expect(at((await answer).message.result, 'stopReason')).toBe('end_turn');
  });
});

describe('a prompt that waits when the sidecar ends', () => {
  it.each([
    ['in good order', (sidecar: Sidecar) => sidecar.stop(), 'cancelled'],
    ['by kill -9', (sidecar: Sidecar) => sidecar.kill(), 'PROMPT_OUTCOME_UNKNOWN'],
  ])('[RC2] [TU7] %s: it runs in the next one, once and in its place', async (_how, end, outcome) => {
    const scope = testScope();
    const agent = await ScriptedAgent.listen(scope);
    const sidecar = await Sidecar.start(scope, { agent: agent.command, args: ['--drain', '100ms'] });
    // The earlier conversation may stand before the prompt's own text.
    const textOf = (message: Message): unknown => (at(message, 'params', 'prompt') as { text: string }[]).at(-1)?.text;
    agent.handlers.set('session/prompt', (message) =>
      textOf(message) === 'first' ? undefined : { stopReason: 'end_turn' },
    );
    agent.handlers.set('session/cancel', (_request, life) => {
      const running = life.received.find(({ message }) => message.method === 'session/prompt');
      if (running) life.reply(running.message, { stopReason: 'cancelled' });
    });
    const editor = connectTo(scope, `unix:${sidecar.socketPath}`, '--give-up', '1s');
    await editor.initialize();
    const sessionId = await editor.newSession();
    const prompt = (text: string): Promise<unknown> =>
      editor
        .ask('session/prompt', { sessionId, prompt: [{ type: 'text', text }] })
        .then(({ message }) => at(message.result, 'stopReason') ?? at(message.error, 'data', 'code'));
    const watcher = await sidecar.unix();
    await watcher.initialize({ sidecar: true });
    await watcher.load(sessionId);
    const answers = [prompt('first')];
    await (await agent.life()).saw('session/prompt');
    answers.push(prompt('second'));
    await watcher.until(
      'it to wait',
      ({ message }) =>
        message.method === '_sidecar/turn' &&
        at(message, 'params', 'state') === 'queued' &&
        watcher.received.filter((entry) => at(entry.message, 'params', 'state') === 'queued').length === 2,
    );
    await end(sidecar);
    answers.push(prompt('third'));
    await sidecar.start();
    expect(await Promise.all(answers)).toEqual([outcome, 'end_turn', 'end_turn']);
    const ran = agent.lives.flatMap(({ received }) =>
      received.flatMap(({ message }) => (message.method === 'session/prompt' ? textOf(message) : [])),
    );
    expect(ran).toEqual(['first', 'second', 'third']);
  });
});

describe('a slow editor', () => {
  it('[RC10] costs the bridge bounded memory, and gets everything when it reads again', {
    timeout: 120_000,
  }, async () => {
    const scope = testScope();
    const sidecar = await Sidecar.start(scope, { agent: streamAgentCommand(), args: ['--log-level', 'warn'] });
    const child = spawn(process.execPath, [SIDECAR_PROGRAM, 'connect', sidecar.wsUrl, ...QUICK], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    scope.defer(() => child.kill());
    const ask = (id: number, method: string, params: object): void => {
      child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`);
    };
    let text = '';
    child.stdout.setEncoding('utf8').on('data', (piece: string) => (text += piece));
    ask(1, 'initialize', { protocolVersion: 1 });
    ask(2, 'session/new', { cwd: '/tmp', mcpServers: [] });
    await waitFor('the session', () => text.includes('"id":2,'));
    const sessionId = /"sessionId":"([^"]+)"/.exec(text)?.[1];
    child.stdout.pause();
    const label = 'x'.repeat(400);
    const order: StreamOrder = { label, chunks: 100_000 };
    ask(3, 'session/prompt', { sessionId, prompt: [{ type: 'text', text: JSON.stringify(order) }] });
    const other = await sidecar.unix();
    await other.initialize({ sidecar: true });
    await other.resume(sessionId ?? '');
    await other.until('the end of the turn', ({ message }) => at(message, 'params', 'state') === 'ended', {
      timeoutMs: 60_000,
    });
    const peakKiB = Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'))?.[1]);
    expect(peakKiB / 1024).toBeLessThan(160);
    child.stdout.resume();
    await waitFor('the response', () => text.includes('"id":3,'), { timeoutMs: 60_000, intervalMs: 50 });
    const numbers = [...text.matchAll(/x(\d+);/g)].map((found) => Number(found[1]));
    expect(numbers.length).toBe(100_000);
    expect(numbers.every((number, i) => number === i)).toBe(true);
  });
});
