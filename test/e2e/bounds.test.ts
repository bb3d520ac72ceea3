/** Every queue has a limit, and what happens there is what `proxy/bounds.ts` says; nobody else notices. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { BOUND_NAMES, type BoundName } from '../../proxy/bounds.ts';
import { buildWithFault } from '../support/faulty-build.ts';
import { at, isResponse } from '../support/json.ts';
import { RawClient } from '../support/raw-client.ts';
import { testScope } from '../support/scope.ts';
import { ROOT } from '../support/scripted-agent.ts';
import type { Sidecar } from '../support/sidecar.ts';
import { boundHitsOf, metricOf, ownMemoryMiB } from '../support/sidecar-facts.ts';
import { type Stage, setStage } from '../support/stage.ts';
import { waitFor } from '../support/wait-for.ts';

const KIB = 1024;
const MIB = 1024 * KIB;

const met = (sidecar: Sidecar, bound: BoundName): Promise<number> =>
  waitFor(`${bound} to be met`, () => boundHitsOf(sidecar, bound));

async function expectUnharmed(stage: Stage): Promise<void> {
  const late = await stage.join();
  await late.load(stage.sessionId);
  const answer = late.ask('session/set_mode', { sessionId: stage.sessionId, modeId: 'm' });
  const { message } = await stage.life.saw('session/set_mode');
  stage.life.reply(message, {});
  expect((await answer).message.error).toBeUndefined();
}

const answersOf = (client: RawClient, from: number) =>
  client.received.slice(from).filter(({ message }) => isResponse(message));

describe('a client', () => {
  it('[BD2] client_reading: one that asks and does not read is not read either; then it gets every answer', async () => {
    const stage = await setStage(testScope());
    const { client, sidecar, sessionId } = stage;
    const turn = await stage.turn('x'.repeat(20 * KIB));
    stage.life.say(stage.agentSessionId, 'y'.repeat(200 * KIB));
    await turn.end();
    const before = ownMemoryMiB(sidecar);
    const greedy = await stage.join({ role: 'observer' });
    greedy.transport.pause();
    const count = 400;
    const from = greedy.received.length;
    for (let i = 0; i < count; i++)
      greedy.sendMessage({ id: `n${i}`, method: '_sidecar/events', params: { sessionId } });
    await met(sidecar, 'client_reading');
    // 400 answers of 220 KB would be 88 MB.
    expect(ownMemoryMiB(sidecar) - before).toBeLessThan(60);
    await client.request('_sidecar/ping');
    greedy.transport.resume();
    await waitFor('all answers', () => answersOf(greedy, from).length === count, { timeoutMs: 30_000 });
    expect(answersOf(greedy, from).map(({ message }) => message.id)).toEqual(
      Array.from({ length: count }, (_, i) => `n${i}`),
    );
    await expectUnharmed(stage);
  });

  it('client_owed: one that loads again and again and does not read is not read either; then it gets every answer', async () => {
    const stage = await setStage(testScope());
    const { sidecar, sessionId, agentSessionId } = stage;
    const turn = await stage.turn();
    for (let n = 0; n < 30; n++) {
      stage.life.update(agentSessionId, { sessionUpdate: 'plan', entries: [{ content: 'p'.repeat(60 * KIB) }] });
    }
    await turn.end();
    const before = ownMemoryMiB(sidecar);
    const greedy = await stage.join({ role: 'observer' });
    greedy.transport.pause();
    const count = 20_000;
    const params = { sessionId, cwd: '/', mcpServers: [] };
    for (let i = 0; i < count; i++) greedy.sendMessage({ id: `l${i}`, method: 'session/load', params });
    await met(sidecar, 'client_owed');
    expect(ownMemoryMiB(sidecar) - before).toBeLessThan(60);
    await stage.client.request('_sidecar/ping');
    const from = greedy.received.length;
    greedy.transport.resume();
    await waitFor('a thousand answers', () => answersOf(greedy, from).length > 1000, { timeoutMs: 30_000 });
    const ids = answersOf(greedy, from).map(({ message }) => message.id);
    expect(ids).toEqual(Array.from(ids, (_, i) => `l${i}`));
    greedy.cut();
    await expectUnharmed(stage);
  });

  it('request_memory: what is kept of answers is bounded, and the newest are still there', async () => {
    const stage = await setStage(testScope());
    const { sidecar, sessionId, agentSessionId } = stage;
    const turn = await stage.turn();
    stage.life.update(agentSessionId, { sessionUpdate: 'plan', entries: [{ content: 'p'.repeat(MIB) }] });
    await turn.end();
    const client = await stage.join({ clientId: 'laptop' });
    const ask = (key: string): Promise<unknown> =>
      client.request('_sidecar/events', { sessionId, _meta: { sidecar: { requestKey: key } } });
    const before = ownMemoryMiB(sidecar);
    for (let i = 0; i < 320; i++) await ask(`k${i}`);
    await met(sidecar, 'request_memory');
    // 320 MiB were answered; the garbage of some of them is there beside what is kept.
    expect(ownMemoryMiB(sidecar) - before).toBeLessThan(220);
    const newest = JSON.stringify(await ask('k319'));
    await (await stage.turn('more')).end();
    expect(JSON.stringify(await ask('k319'))).toBe(newest);
    expect(JSON.stringify(await ask('k0'))).not.toBe(newest);
  });

  it('client_lagging: one that never reads what no log holds is closed, the others get it all', async () => {
    const stage = await setStage(testScope(), {
      args: ['--client-buffer-bytes', '16KiB', '--max-message-bytes', '64KiB'],
    });
    const { client, sidecar, life } = stage;
    const stuck = await stage.join();
    stuck.transport.pause();
    const count = 200;
    for (let n = 0; n < count; n++) {
      life.send({ method: '_vendor/note', params: { n, text: 'z'.repeat(30 * KIB) } });
      await client.until(`note ${n}`, ({ message }) => at(message, 'params', 'n') === n, {
        from: client.received.length,
      });
    }
    expect(client.received.filter(({ message }) => message.method === '_vendor/note').length).toBe(count);
    await met(sidecar, 'client_lagging');
    stuck.transport.resume();
    await stuck.untilClosed();
    await expectUnharmed(stage);
  });

  it('client_requests: more than 1024 unanswered requests of one client are refused, those of others are not', async () => {
    const stage = await setStage(testScope());
    const { client, life, sidecar } = stage;
    const from = client.received.length;
    for (let i = 0; i < 1030; i++) client.sendMessage({ id: `s${i}`, method: '_vendor/slow', params: { i } });
    await waitFor('the refusals', () => answersOf(client, from).length === 6);
    const [refusal] = answersOf(client, from);
    expect(at(refusal?.message, 'error', 'data')).toEqual({ kind: 'limit_reached', limit: 'client_requests' });
    await met(sidecar, 'client_requests');
    const other = await stage.join();
    const asked = other.ask('_vendor/quick');
    life.reply((await life.saw('_vendor/quick')).message, {});
    await asked;
    for (const { message } of life.received.filter((entry) => entry.message.method === '_vendor/slow'))
      life.reply(message, {});
    await waitFor('all answers', () => answersOf(client, from).length === 1030);
    await expectUnharmed(stage);
  });

  it('queued_prompts: 64 prompts wait in a session, a further one finds it busy', async () => {
    const stage = await setStage(testScope());
    const { client, sessionId, sidecar } = stage;
    const prompts = Array.from({ length: 70 }, (_, i) =>
      client.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: `p${i}` }] }),
    );
    const refused = await Promise.all(prompts.slice(65));
    expect(refused.map(({ message }) => at(message, 'error', 'data', 'kind'))).toEqual(Array(5).fill('session_busy'));
    await met(sidecar, 'queued_prompts');
    // Cancelled before it is forwarded, it would never come to the agent.
    const first = await stage.life.saw('session/prompt');
    client.notify('session/cancel', { sessionId });
    stage.life.reply(first.message, { stopReason: 'cancelled' });
    const rest = await Promise.all(prompts.slice(0, 65));
    expect(new Set(rest.map(({ message }) => at(message, 'result', 'stopReason')))).toEqual(new Set(['cancelled']));
    await expectUnharmed(stage);
  });

  it('queued_prompts: together they are not larger than one message may be', async () => {
    const stage = await setStage(testScope(), { args: ['--max-message-bytes', '1MiB'] });
    const { client, sessionId } = stage;
    const text = 'p'.repeat(300 * KIB);
    const prompts = Array.from({ length: 6 }, () =>
      client.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text }] }),
    );
    for (const { message } of await Promise.all(prompts.slice(4))) {
      expect(at(message, 'error', 'data', 'kind')).toBe('session_busy');
    }
    const first = await stage.life.saw('session/prompt');
    client.notify('session/cancel', { sessionId });
    stage.life.reply(first.message, { stopReason: 'cancelled' });
    await Promise.all(prompts);
  });

  it('attachments: a connection is on 1024 sessions at most', async () => {
    const stage = await setStage(testScope(), { args: ['--max-open-sessions', '64'] });
    const { client, sidecar } = stage;
    const ids = await Promise.all(Array.from({ length: 1023 }, () => client.newSession()));
    expect(new Set(ids).size).toBe(1023);
    const other = await stage.join();
    const more = await other.newSession();
    const { error } = (await client.ask('session/load', { sessionId: more, cwd: '/tmp', mcpServers: [] })).message;
    expect(at(error, 'data')).toEqual({ kind: 'limit_reached', limit: 'attachments' });
    await met(sidecar, 'attachments');
    await client.load(ids[0] ?? '');
    await client.request('session/close', { sessionId: ids[1] });
    await client.load(more);
  });

  it('kept_servers: of the servers that sessions were made with, the newest 16 MiB are kept for the next agent', async () => {
    const stage = await setStage(testScope());
    const { client, sidecar, agent } = stage;
    const mcpServers = [{ name: 's', command: '/s', args: ['a'.repeat(9 * 1024 * KIB)], env: [] }];
    const made = async () => String(at(await client.request('session/new', { cwd: '/tmp', mcpServers }), 'sessionId'));
    const first = await made();
    const last = await made();
    await met(sidecar, 'kept_servers');
    const turn = await stage.turn();
    process.kill(stage.life.pid, 'SIGKILL');
    await turn.answer;
    for (const [n, sessionId] of [last, first].entries()) {
      void client
        .ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'again' }] })
        .catch(() => undefined);
      const { message } = await (await agent.life(1)).saw('session/new', n);
      expect(at(message, 'params', 'mcpServers')).toEqual(sessionId === last ? mcpServers : []);
      await (await agent.life(1)).saw('session/prompt', n);
      const loaded = await client.request('session/load', { sessionId, cwd: '/tmp', mcpServers });
      const missing = sessionId === last ? undefined : ['mcpServers'];
      expect(at(loaded, '_meta', 'sidecar', 'notApplied')).toEqual(missing);
    }
  });
});

describe('the agent', () => {
  it('[BD3] agent_stdin: while it does not take its input, clients are not read; when it does, nothing is lost', async () => {
    const stage = await setStage(testScope(), { args: ['--heartbeat', '1s'] });
    const { client, life, sidecar } = stage;
    const socket = await sidecar.webSocket();
    await socket.initialize();
    const before = ownMemoryMiB(sidecar);
    process.kill(life.pid, 'SIGSTOP');
    const count = 640;
    for (let n = 0; n < count; n++) client.notify('_vendor/big', { n, text: 'b'.repeat(100 * KIB) });
    await met(sidecar, 'agent_stdin');
    // 64 MB were sent; what the sidecar took of them is bounded.
    await waitFor(
      'some missed heartbeats',
      async () => (await metricOf(sidecar, 'acp_sidecar_queue_bytes{queue="agent_stdin"}')) > MIB,
    );
    expect(ownMemoryMiB(sidecar) - before).toBeLessThan(40);
    expect(await metricOf(sidecar, 'acp_sidecar_queue_bytes{queue="agent_stdin"}')).toBeLessThan(4 * MIB);
    await new Promise((resolve) => setTimeout(resolve, 4000));
    expect(socket.closed).toBeUndefined();
    process.kill(life.pid, 'SIGCONT');
    const big = (): unknown[] => life.received.flatMap(({ message }) => at(message, 'params', 'n') ?? []);
    await waitFor('all of it', () => big().length === count, { timeoutMs: 30_000 });
    expect(big()).toEqual(Array.from({ length: count }, (_, n) => n));
    await socket.request('_sidecar/ping');
    await expectUnharmed(stage);
  });

  it('[BD4] append_queue: one that is faster than the store is slowed by its own pipe, and every event is there', async () => {
    const commit = 'committing = this.#log.commit(taken.batch);';
    const slow =
      'committing = new Promise((later) => setTimeout(later, 50)).then(() => this.#log.commit(taken.batch));';
    const program = await buildWithFault({
      name: 'slow-store',
      file: 'storage/group-commit.ts',
      replace: [[commit, slow]],
    });
    const stage = await setStage(testScope(), { program });
    const { life, sidecar, client, sessionId, agentSessionId } = stage;
    const turn = await stage.turn();
    const before = ownMemoryMiB(sidecar);
    const count = 200;
    for (let n = 0; n < count; n++) {
      life.update(agentSessionId, { sessionUpdate: 'plan', entries: [{ content: `${n} ${'f'.repeat(200 * KIB)}` }] });
    }
    let queued = 0;
    let most = 0;
    const turnState = { ended: false };
    void turn.end().then(() => (turnState.ended = true));
    while (!turnState.ended) {
      queued = Math.max(queued, await metricOf(sidecar, 'acp_sidecar_queue_bytes{queue="append"}'));
      most = Math.max(most, ownMemoryMiB(sidecar));
    }
    // 40 MB went through a store that takes 50 ms for a commit.
    expect(queued).toBeGreaterThan(0);
    expect(queued).toBeLessThan(2 * MIB);
    expect(most - before).toBeLessThan(60);
    await met(sidecar, 'append_queue');
    const plans = client
      .updates(sessionId)
      .map(({ message }) => parseInt(String(at(message, 'params', 'update', 'entries', 0, 'content')), 10));
    expect(plans).toEqual(Array.from({ length: count }, (_, n) => n));
    await expectUnharmed(stage);
  });

  it('approvals: 256 are asked at once, the agent gets an error for a further one', async () => {
    const stage = await setStage(testScope());
    const { life, sidecar, agentSessionId, client, sessionId } = stage;
    const turn = await stage.turn();
    for (let i = 0; i < 260; i++) {
      life.send({
        id: `c${i}`,
        method: 'session/request_permission',
        params: {
          sessionId: agentSessionId,
          toolCall: { toolCallId: `t${i}` },
          options: [{ optionId: 'a', kind: 'allow_once', name: 'A' }],
        },
      });
    }
    const refused = await life.answerTo('c259');
    expect(at(refused.message, 'error', 'data')).toEqual({ kind: 'limit_reached', limit: 'approvals' });
    expect(life.received.filter(({ message }) => message.error).length).toBe(4);
    await met(sidecar, 'approvals');
    client.notify('session/cancel', { sessionId });
    const cancelled = await life.answerTo('c255');
    expect(at(cancelled.message, 'result', 'outcome', 'outcome')).toBe('cancelled');
    await turn.end({ stopReason: 'cancelled' });
  });

  it('agent_requests: 256 wait for a client, the agent gets an error for a further one', async () => {
    const stage = await setStage(testScope());
    const { life, sidecar, agentSessionId, client } = stage;
    const turn = await stage.turn();
    for (let i = 0; i < 260; i++) {
      life.send({ id: `r${i}`, method: 'fs/read_text_file', params: { sessionId: agentSessionId, path: `/f${i}` } });
      life.send({ id: `o${i}`, method: '_vendor/outside', params: {} });
    }
    expect(at((await life.answerTo('r259')).message, 'error', 'data', 'limit')).toBe('agent_requests');
    expect(at((await life.answerTo('o259')).message, 'error', 'data', 'limit')).toBe('agent_requests');
    expect(life.received.filter(({ message }) => message.error).length).toBe(8);
    await met(sidecar, 'agent_requests');
    for (const { message } of client.received.filter((entry) => entry.message.method === 'fs/read_text_file')) {
      client.sendMessage({ id: message.id, result: { content: '' } });
    }
    await life.answerTo('r255');
    await turn.end();
    await expectUnharmed(stage);
  });

  it('early_updates: what comes before the name of its session is kept up to 16 MiB', async () => {
    const stage = await setStage(testScope());
    const { life, sidecar, client } = stage;
    stage.agent.handlers.delete('session/new');
    const made = client.ask('session/new', { cwd: '/tmp', mcpServers: [] });
    const request = await life.saw('session/new', 1);
    const before = ownMemoryMiB(sidecar);
    for (let n = 0; n < 300; n++)
      life.update('early', { sessionUpdate: 'plan', entries: [{ content: `${n} ${'e'.repeat(100 * KIB)}` }] });
    await met(sidecar, 'early_updates');
    expect(ownMemoryMiB(sidecar) - before).toBeLessThan(120);
    life.reply(request.message, { sessionId: 'early' });
    expect(at((await made).message, 'result', 'sessionId')).toBe('early');
    life.update('early', { sessionUpdate: 'plan', entries: [{ content: 'last' }] });
    await client.until('the last one', ({ text }) => text.includes('"last"'));
    const kept = client.updates('early').length;
    expect(kept).toBeGreaterThan(100);
    expect(kept).toBeLessThan(200);
    await expectUnharmed(stage);
  });
});

describe('sessions and peers', () => {
  it('[BD6] sessions: those that nobody uses leave memory and come back as they were, without being bound again', async () => {
    const stage = await setStage(testScope(), { args: ['--max-open-sessions', '2'] });
    const { life, sidecar, client, sessionId, agentSessionId } = stage;
    const turn = await stage.turn('first');
    life.say(agentSessionId, 'before sleep');
    await turn.end();
    await client.request('session/close', { sessionId }).catch(() => undefined);
    const others: string[] = [];
    // Only what has not been asked for in 10 s sleeps; each new session looks again.
    await waitFor(
      'the first session to sleep',
      async () => {
        const other = await stage.join();
        others.push(await other.newSession());
        other.cut();
        return (
          (await boundHitsOf(sidecar, 'sessions')) > 0 &&
          (await metricOf(sidecar, 'acp_sidecar_sessions_open')) < others.length
        );
      },
      { timeoutMs: 30_000, intervalMs: 500 },
    );
    life.update(agentSessionId, { sessionUpdate: 'plan', entries: [{ content: 'while asleep' }] });
    const late = await stage.join();
    const seen = life.received.length;
    await late.until('nothing', () => true, { from: 0 });
    await late.load(sessionId);
    expect(late.agentText(sessionId)).toBe('before sleep');
    await late.until('what it said in its sleep', ({ text }) => text.includes('while asleep'));
    const again = late.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'second' }] });
    const asked = await life.saw('session/prompt', 1);
    expect(at(asked.message, 'params', 'sessionId')).toBe(agentSessionId);
    life.say(agentSessionId, ' and after');
    life.reply(asked.message, { stopReason: 'end_turn' });
    await again;
    expect(late.agentText(sessionId)).toBe('before sleep and after');
    expect(life.received.slice(seen).map(({ message }) => message.method)).toEqual(['session/prompt']);
  });

  it('[BD5] heartbeat: a WebSocket that does not answer is removed, but not while it takes what it is sent', async () => {
    const stage = await setStage(testScope(), { args: ['--heartbeat', '300ms'] });
    const { life, sidecar, sessionId, agentSessionId } = stage;
    const peer = new WebSocket(sidecar.wsUrl, { autoPong: false });
    const closed = new Promise<number>((resolve) => peer.once('close', resolve));
    let ticks = 0;
    peer.on('message', (data: Buffer) => (ticks += data.toString().split('tick').length - 1));
    await new Promise((resolve) => peer.once('open', resolve));
    const params = { protocolVersion: 1, clientCapabilities: {} };
    peer.send(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params }));
    peer.send(
      JSON.stringify({
        jsonrpc: '2.0',
        id: 2,
        method: 'session/resume',
        params: { sessionId, cwd: '/', mcpServers: [] },
      }),
    );
    const turn = await stage.turn();
    const timer = setInterval(() => life.say(agentSessionId, 'tick '), 50);
    await waitFor('more than two heartbeats', () => ticks > 40);
    expect(await boundHitsOf(sidecar, 'heartbeat')).toBe(0);
    clearInterval(timer);
    await turn.end();
    expect(await closed).toBe(4408);
    await met(sidecar, 'heartbeat');
    await expectUnharmed(stage);
  });

  it('heartbeat: a Unix socket whose peer stands still with bytes waiting is closed; one that owes nothing is not', async () => {
    const stage = await setStage(testScope(), { args: ['--heartbeat', '300ms', '--client-buffer-bytes', '16KiB'] });
    const { life, sidecar, sessionId, agentSessionId } = stage;
    const [still, idle] = [await stage.join(), await stage.join()];
    await still.load(sessionId);
    still.transport.pause();
    idle.transport.pause();
    const turn = await stage.turn();
    for (let n = 0; n < 40; n++) life.say(agentSessionId, 'w'.repeat(50 * KIB));
    await turn.end();
    await met(sidecar, 'heartbeat');
    still.transport.resume();
    await still.untilClosed();
    idle.transport.resume();
    await idle.request('_sidecar/ping');
  });
});

it('[BD1] every bound has a test that names it', () => {
  const tests = readdirSync(join(ROOT, 'test'), { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith('.test.ts'),
  );
  const text = tests.map((name) => readFileSync(join(ROOT, 'test', name), 'utf8')).join('\n');
  const elsewhere: Partial<Record<BoundName, string>> = {
    message_size: 'a frame of 65 MiB on a WebSocket: one error',
    connections: 'T12: there are no more connections',
    handshakes: 'T10: a handshake that never ends',
    address_rate: 'T11: an address that keeps failing',
  };
  const missing = BOUND_NAMES.filter((name) => {
    const title = elsewhere[name] ?? `${name}: `;
    return !text.includes(`'${title}`) && !text.includes(`] ${title}`);
  });
  expect(missing).toEqual([]);
});
