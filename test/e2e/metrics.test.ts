/** /healthz, /readyz and /metrics of a real sidecar, after real traffic. */
import { execFile } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { METRICS } from '../../proxy/metric-table.ts';
import { answerCard, askPermission, card, choose, openRoom } from '../support/room.ts';
import { ask, parseExposition, type Scraped, scrape } from '../support/scrape.ts';
import { testScope } from '../support/scope.ts';
import { ScriptedAgent } from '../support/scripted-agent.ts';
import { Sidecar } from '../support/sidecar.ts';
import { setStage } from '../support/stage.ts';
import { tempDir } from '../support/temp-dir.ts';
import { waitFor } from '../support/wait-for.ts';

const run = promisify(execFile);

function valueOf(scraped: Scraped, key: string): number {
  const value = scraped.samples.get(key);
  if (value === undefined) throw new Error(`no ${key} among:\n${[...scraped.samples.keys()].join('\n')}`);
  return value;
}

/** Scrapes until a sample has a value. */
async function reaches(wsUrl: string, key: string, value: number): Promise<Scraped> {
  let seen: Scraped | undefined;
  await waitFor(
    () => `${key} to be ${value}; it is ${seen?.samples.get(key)}`,
    async () => {
      seen = await scrape(wsUrl);
      return seen.samples.get(key) === value;
    },
  );
  return seen as Scraped;
}

describe('/metrics', () => {
  it('[OB3] has exactly the metrics of the table, with their types and labels', async () => {
    const { sidecar } = await setStage(testScope());
    const { types, helps, samples } = await scrape(sidecar.wsUrl);
    expect([...types.keys()]).toEqual(Object.keys(METRICS));
    for (const [name, spec] of Object.entries(METRICS)) {
      expect(types.get(name)).toBe(spec.type);
      expect(helps.get(name)).toBe(spec.help);
      const labels = 'labels' in spec ? spec.labels : spec.type === 'histogram' ? ['le'] : [];
      const mine = [...samples.keys()].filter((key) => key.replace(/\{.*/, '').replace(/_bucket$/, '') === name);
      expect(mine.length, name).toBeGreaterThan(0);
      for (const key of mine) {
        expect([...key.matchAll(/([a-z_]+)="/g)].map((found) => found[1])).toEqual(labels);
      }
    }
    const { headers } = await ask(sidecar.wsUrl, '/metrics');
    expect(headers['content-type']).toBe('text/plain; version=0.0.4; charset=utf-8');
  });

  it('[OB3] the reader of this test refuses what is not in the format', () => {
    for (const text of [
      'a 1',
      'a 1\n',
      '# TYPE a gauge\na x\n',
      '# TYPE a gauge\na 1\na 2\n',
      '# TYPE a gauge\na{b=1} 1\n',
    ]) {
      expect(() => parseExposition(text), JSON.stringify(text)).toThrow();
    }
    expect(parseExposition('# TYPE a gauge\na{b="c"} 1\n').samples.get('a{b="c"}')).toBe(1);
  });

  it('[OB3] counts turns by outcome, events, commits and their time', async () => {
    const stage = await setStage(testScope());
    const { sidecar, life, agentSessionId } = stage;
    const first = await stage.turn();
    expect(valueOf(await scrape(sidecar.wsUrl), 'acp_sidecar_turns_running')).toBe(1);
    life.say(agentSessionId, 'hello');
    await first.end();
    await (await stage.turn()).end({ stopReason: 'refusal' });
    await (await stage.turn()).end({ stopReason: 'tired' });
    const failed = await stage.turn();
    life.fail(failed.request, -32603, 'no');
    await failed.answer;
    const cut = await stage.turn();
    life.exit(3);
    await cut.answer;
    const after = await reaches(sidecar.wsUrl, 'acp_sidecar_turns_total{outcome="interrupted"}', 1);
    for (const [outcome, count] of Object.entries({ end_turn: 1, refusal: 1, other: 1, error: 1, cancelled: 0 })) {
      expect(valueOf(after, `acp_sidecar_turns_total{outcome="${outcome}"}`), outcome).toBe(count);
    }
    expect(valueOf(after, 'acp_sidecar_turns_running')).toBe(0);
    const log = await run(process.execPath, [
      join(import.meta.dirname, '../../bin/acp-sidecar.cjs'),
      'show',
      stage.sessionId,
      '--json',
      '--store',
      sidecar.store,
    ]);
    const { events } = JSON.parse(log.stdout) as { events: number };
    expect(valueOf(after, 'acp_sidecar_events_appended_total')).toBe(events);
    const commits = valueOf(after, 'acp_sidecar_commits_total{outcome="committed"}');
    expect(commits).toBeGreaterThan(4);
    expect(commits).toBeLessThanOrEqual(events);
    expect(valueOf(after, 'acp_sidecar_flush_seconds_count')).toBe(commits);
    expect(valueOf(after, 'acp_sidecar_flush_seconds_bucket{le="+Inf"}')).toBe(commits);
    expect(valueOf(after, 'acp_sidecar_flush_seconds_sum')).toBeGreaterThan(0);
    expect(valueOf(after, 'acp_sidecar_store_bytes')).toBeGreaterThan(8192);
  });

  it('[OB3] counts approvals by outcome with the time they waited', async () => {
    const room = await openRoom(testScope());
    const { wsUrl } = room.sidecar;
    const client = await room.enter();
    const sessionId = await client.newSession();
    void client.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'go' }] });
    await room.life().saw('session/prompt');
    for (const [n, option] of ['yes', 'no'].entries()) {
      askPermission(room.life(), sessionId);
      const asked = await card(client, sessionId, n);
      expect(valueOf(await scrape(wsUrl), 'acp_sidecar_approvals_pending')).toBe(1);
      answerCard(client, asked, choose(option));
      await reaches(wsUrl, 'acp_sidecar_approvals_pending', 0);
    }
    askPermission(room.life(), sessionId);
    await card(client, sessionId, 2);
    client.notify('session/cancel', { sessionId });
    const after = await reaches(wsUrl, 'acp_sidecar_approvals_total{outcome="cancelled"}', 1);
    expect(valueOf(after, 'acp_sidecar_approvals_total{outcome="allowed"}')).toBe(1);
    expect(valueOf(after, 'acp_sidecar_approvals_total{outcome="rejected"}')).toBe(1);
    expect(valueOf(after, 'acp_sidecar_approval_wait_seconds_count')).toBe(3);
  });

  it('[OB3] counts clients, sessions, replays by mode and reason, drops and agent restarts', async () => {
    const stage = await setStage(testScope(), { args: ['--drain', '50ms'] });
    const { sidecar, client, sessionId, life } = stage;
    await (await stage.turn()).end();
    await client.load(sessionId);
    await client.load(sessionId, 'nonsense');
    await client.resume(sessionId);
    const watcher = await stage.join({ role: 'observer' });
    watcher.notify('session/cancel', { sessionId });
    await watcher.request('session/list', {});
    life.line('this is no JSON-RPC');
    life.send({ id: 99, result: {} });
    life.exit(0);
    await reaches(sidecar.wsUrl, 'acp_sidecar_agent_exits_total{how="code"}', 1);
    void client.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'again' }] });
    await stage.agent.life(1);
    const after = await reaches(sidecar.wsUrl, 'acp_sidecar_agent_restarts_total', 1);
    const expected = {
      'acp_sidecar_clients{role="controller"}': 1,
      'acp_sidecar_clients{role="observer"}': 1,
      acp_sidecar_connections_total: 2,
      acp_sidecar_sessions: 1,
      acp_sidecar_sessions_open: 1,
      'acp_sidecar_replays_total{mode="full",reason="no_cursor"}': 1,
      'acp_sidecar_replays_total{mode="full",reason="malformed"}': 1,
      'acp_sidecar_replays_total{mode="none",reason="no_cursor"}': 1,
      'acp_sidecar_messages_dropped_total{cause="agent_not_json_rpc"}': 1,
      'acp_sidecar_messages_dropped_total{cause="agent_unknown_response"}': 1,
      'acp_sidecar_messages_dropped_total{cause="observer"}': 1,
      acp_sidecar_agent_up: 1,
      'acp_sidecar_agent_starts_total{outcome="started"}': 2,
      'acp_sidecar_store_state{state="ok"}': 1,
    };
    for (const [key, value] of Object.entries(expected)) expect(valueOf(after, key), key).toBe(value);
  });

  it('[OB3] tells how many bytes wait for a client that does not read', async () => {
    const stage = await setStage(testScope());
    const { sidecar, life, agentSessionId, sessionId } = stage;
    const slow = await stage.join();
    await slow.resume(sessionId);
    slow.transport.pause();
    const open = await stage.turn();
    let said = 0;
    const text = 'x'.repeat(32 * 1024);
    await waitFor('bytes to wait', async () => {
      life.say(agentSessionId, text, { _meta: { n: said++ } });
      return valueOf(await scrape(sidecar.wsUrl), 'acp_sidecar_outbox_max_bytes') > 0;
    });
    const held = await scrape(sidecar.wsUrl);
    expect(valueOf(held, 'acp_sidecar_queue_bytes{queue="outbox"}')).toBeGreaterThan(0);
    slow.transport.resume();
    await open.end();
    await reaches(sidecar.wsUrl, 'acp_sidecar_queue_bytes{queue="outbox"}', 0);
  });

  it('[OB3] asks for what a client must show: token, Host and Origin', async () => {
    const scope = testScope();
    const agent = await ScriptedAgent.listen(scope);
    const tokens = join(tempDir(scope), 'tokens');
    writeFileSync(tokens, 'the-right-token observer prometheus\n', { mode: 0o600 });
    const sidecar = await Sidecar.start(scope, { agent: agent.command, args: ['--token-file', tokens] });
    const { wsUrl } = sidecar;
    expect((await ask(wsUrl, '/metrics')).status).toBe(401);
    expect((await ask(wsUrl, '/metrics', { authorization: 'Bearer the-wrong-token' })).status).toBe(401);
    expect((await ask(wsUrl, '/metrics', { origin: 'https://evil.example' })).status).toBe(403);
    const metrics = await scrape(wsUrl, { authorization: 'Bearer the-right-token' });
    expect(valueOf(metrics, 'acp_sidecar_connections_refused_total{cause="token"}')).toBe(2);
    expect(valueOf(metrics, 'acp_sidecar_connections_refused_total{cause="origin_or_host"}')).toBe(1);
    // The probes of an orchestrator have no token.
    expect((await ask(wsUrl, '/healthz')).status).toBe(200);
    expect((await ask(wsUrl, '/readyz')).status).toBe(200);
  });

  it('[OB3] needs a Host of this machine when there are no tokens', async () => {
    const { sidecar } = await setStage(testScope());
    expect((await ask(sidecar.wsUrl, '/metrics', { host: 'evil.example' })).status).toBe(403);
  });
});

describe('the probes', () => {
  it('[OB2] answer GET and HEAD, and nothing else is there', async () => {
    const { sidecar } = await setStage(testScope());
    const { wsUrl } = sidecar;
    expect(await ask(wsUrl, '/healthz')).toMatchObject({ status: 200, body: 'ok\n' });
    expect(await ask(wsUrl, '/healthz?x=1')).toMatchObject({ status: 200 });
    expect(await ask(wsUrl, '/healthz', {}, 'HEAD')).toMatchObject({ status: 200, body: '' });
    expect(await ask(wsUrl, '/healthz', {}, 'POST')).toMatchObject({ status: 405 });
    expect(await ask(wsUrl, '/acp')).toMatchObject({ status: 426 });
    expect(await ask(wsUrl, '/')).toMatchObject({ status: 404 });
    expect(JSON.parse((await ask(wsUrl, '/readyz')).body)).toEqual({
      ready: true,
      store: 'ok',
      agent: 'running',
      draining: false,
    });
  });

  it('[OB2] not ready while the agent cannot be started, ready again when the next try may work', async () => {
    const scope = testScope();
    const dir = tempDir(scope);
    const program = join(dir, 'agent');
    mkdirSync(dir, { recursive: true });
    writeFileSync(program, '#!/bin/sh\nread line\nexit 1\n');
    chmodSync(program, 0o755);
    const sidecar = await Sidecar.start(scope, { agent: [program] });
    renameSync(program, `${program}.away`);
    const client = await sidecar.unix();
    // Each try takes longer to come; after a few the pause is long enough to look at.
    let seen: { status: number; body: string } | undefined;
    await waitFor('an agent that failed to be seen', async () => {
      client.sendMessage({ id: 1, method: 'initialize', params: { protocolVersion: 1 } });
      seen = await ask(sidecar.wsUrl, '/readyz');
      return seen.status === 503;
    });
    expect(JSON.parse(seen?.body ?? '')).toMatchObject({ ready: false, agent: 'failed', store: 'ok' });
    expect((await ask(sidecar.wsUrl, '/healthz')).status).toBe(200);
    expect(valueOf(await scrape(sidecar.wsUrl), 'acp_sidecar_agent_up')).toBe(0);
    await waitFor('the pause to be over', async () => (await ask(sidecar.wsUrl, '/readyz')).status === 200, {
      timeoutMs: 40_000,
    });
  });

  it('[OB2] not ready while it drains', async () => {
    const stage = await setStage(testScope(), { args: ['--drain', '20s'] });
    await stage.client.request('session/list', {});
    const open = await stage.turn();
    process.kill(stage.sidecar.pid, 'SIGTERM');
    await waitFor('/readyz to say no', async () => (await ask(stage.sidecar.wsUrl, '/readyz')).status === 503);
    expect(JSON.parse((await ask(stage.sidecar.wsUrl, '/readyz')).body)).toMatchObject({ draining: true });
    expect((await ask(stage.sidecar.wsUrl, '/healthz')).status).toBe(200);
    await open.end();
    expect((await stage.sidecar.exited()).code).toBe(0);
  });

  it('[OB2] not ready while the disk of the store is full, ready again when there is room', async (context) => {
    const scope = testScope();
    const disk = tempDir(scope);
    const mounted = await run('mount', ['-t', 'tmpfs', '-o', 'size=112m', 'none', disk]).then(
      () => true,
      () => false,
    );
    if (!mounted) return context.skip('a file system cannot be mounted here');
    scope.defer(() => run('umount', ['-l', disk]));
    const agent = await ScriptedAgent.listen(scope);
    agent.handlers.set('session/prompt', () => ({ stopReason: 'end_turn' }));
    const sidecar = await Sidecar.start(scope, { agent: agent.command, store: join(disk, 'store') });
    const client = await sidecar.unix();
    await client.initialize();
    const sessionId = await client.newSession();
    const filler = join(disk, 'filler');
    await run('dd', ['if=/dev/zero', `of=${filler}`, 'bs=64k']).catch(() => undefined);
    expect(existsSync(filler)).toBe(true);
    let refused = 0;
    await waitFor(
      () => `/readyz to say full; ${refused} prompts were refused`,
      async () => {
        const prompt = [{ type: 'text', text: 'x'.repeat(64 * 1024) }];
        const { message } = await client.ask('session/prompt', { sessionId, prompt });
        if (message.error) refused++;
        await run('dd', ['if=/dev/zero', `of=${filler}`, 'bs=4k', 'oflag=append', 'conv=notrunc']).catch(
          () => undefined,
        );
        return (await ask(sidecar.wsUrl, '/readyz')).status === 503;
      },
      { timeoutMs: 40_000 },
    );
    expect(JSON.parse((await ask(sidecar.wsUrl, '/readyz')).body)).toMatchObject({ ready: false, store: 'full' });
    expect(readFileSync(filler).length).toBeGreaterThan(0);
    rmSync(filler);
    await waitFor('/readyz to say ok', async () => (await ask(sidecar.wsUrl, '/readyz')).status === 200, {
      timeoutMs: 40_000,
    });
  }, 90_000);
});
