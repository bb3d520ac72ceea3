/**
 * A full disk under a running sidecar: on a small tmpfs where the tests may mount one, and everywhere with a store that
 * says so.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { at, type Received } from '../support/json.ts';
import { faultyStoreProgram } from '../support/faulty-store.ts';
import { type RawClient, RpcError } from '../support/raw-client.ts';
import { type Scope, testScope } from '../support/scope.ts';
import { type AgentLife, ScriptedAgent } from '../support/scripted-agent.ts';
import { Sidecar } from '../support/sidecar.ts';
import { tempDir } from '../support/temp-dir.ts';
import { waitFor } from '../support/wait-for.ts';

const MIB = 1024 * 1024;
const DISK_BYTES = 110 * MIB;

/** A disk that can be filled and emptied. */
interface Disk {
  readonly store: string;
  readonly program?: string;
  readonly env: Readonly<Record<string, string>>;
  fill(): void;
  empty(): void;
}

function mountable(): boolean {
  return (
    process.getuid?.() === 0 && spawnSync('unshare', ['--mount', 'mount', '-t', 'tmpfs', 'tmpfs', '/mnt']).status === 0
  );
}

function tmpfs(scope: Scope): Disk {
  const dir = tempDir(scope);
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${DISK_BYTES},mode=700`, 'tmpfs', dir]);
  if (mounted.status !== 0) throw new Error('no tmpfs could be mounted');
  scope.defer(() => spawnSync('umount', ['-l', dir]));
  const filler = join(dir, 'filler');
  return {
    store: join(dir, 'store'),
    env: {},
    fill() {
      const piece = Buffer.alloc(64 * 1024, 1);
      try {
        for (;;) writeFileSync(filler, piece, { flag: 'a' });
      } catch {
        // Full now.
      }
    },
    empty: () => rmSync(filler, { force: true }),
  };
}

function injected(scope: Scope): Disk {
  const dir = tempDir(scope);
  const full = join(dir, 'full');
  return {
    store: join(dir, 'store'),
    program,
    env: { STORE_FULL_FILE: full },
    fill: () => writeFileSync(full, ''),
    empty: () => rmSync(full, { force: true }),
  };
}

let program = '';
beforeAll(async () => {
  program = await faultyStoreProgram();
});

interface Stage {
  readonly disk: Disk;
  readonly sidecar: Sidecar;
  readonly agent: ScriptedAgent;
  readonly life: AgentLife;
  readonly client: RawClient;
  readonly sessionId: string;
}

const AGENT_SESSION = 'agent-session-1';

async function setStage(scope: Scope, disk: Disk, args: readonly string[] = []): Promise<Stage> {
  const agent = await ScriptedAgent.listen(scope);
  agent.handlers.set('initialize', () => ({ protocolVersion: 1, agentCapabilities: { loadSession: true } }));
  const { store, env } = disk;
  const sidecar = await Sidecar.start(scope, {
    agent: agent.command,
    args: [...args, '--drain', '0s'],
    store,
    env,
    ...(disk.program === undefined ? {} : { program: disk.program }),
  });
  scope.defer(() => disk.empty());
  const client = await sidecar.unix();
  await client.initialize({ sidecar: true });
  const sessionId = await client.newSession();
  return { disk, sidecar, agent, life: await agent.life(), client, sessionId };
}

interface Running {
  readonly request: Received;
  readonly answer: Promise<Received>;
}

async function startTurn(stage: Stage, text: string, n = 0): Promise<Running> {
  const { client, sessionId, life } = stage;
  const answer = client.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text }] });
  return { request: await life.saw('session/prompt', n), answer };
}

/** Makes the disk full, also where the sidecar's ballast was, and the sidecar notice. */
async function stall(stage: Stage): Promise<void> {
  const { client, life, disk } = stage;
  disk.fill();
  let n = 0;
  const noticed = (): boolean => client.received.some(({ text }) => text.includes('"read_only"'));
  // The first one may still go where the ballast was.
  await waitFor(
    () => `the sidecar to notice; it said:\n${stage.sidecar.stderr.slice(-1500)}`,
    () => {
      disk.fill();
      if (!noticed())
        life.update(AGENT_SESSION, { sessionUpdate: 'plan', entries: [], n: n++, pad: 'x'.repeat(100_000) });
      return noticed();
    },
    { intervalMs: 50 },
  );
}

async function failure(asked: Promise<unknown>): Promise<RpcError> {
  const caught: unknown = await asked.catch((error: unknown) => error);
  if (!(caught instanceof RpcError)) throw new Error(`it did not fail: ${JSON.stringify(caught)}`);
  return caught;
}

const kindOf = (error: unknown): unknown => at(error, 'data', 'kind');

const disks: readonly (readonly [string, (scope: Scope) => Disk, boolean])[] = [
  ['on a small tmpfs', tmpfs, mountable()],
  ['said by the store', injected, true],
];

for (const [where, makeDisk, possible] of disks) {
  describe.skipIf(!possible)(`a full disk, ${where}`, () => {
    it('[DU6] refuses prompts and sessions, reads on, and goes on by itself when there is room', async () => {
      const stage = await setStage(testScope(), makeDisk(testScope()));
      const { client, life, sessionId, sidecar } = stage;
      const turn = await startTurn(stage, 'work');
      life.say(AGENT_SESSION, 'before ');
      await stall(stage);
      expect(kindOf(await failure(client.prompt(sessionId, 'more')))).toBe('not_persisted');
      expect(kindOf(await failure(client.newSession()))).toBe('not_persisted');
      // Reads go on, and show nothing that is not durable.
      const reader = await sidecar.unix();
      await reader.initialize();
      await reader.load(sessionId);
      expect(reader.agentText(sessionId)).toBe('before ');
      life.say(AGENT_SESSION, 'and after');
      life.reply(turn.request.message, { stopReason: 'end_turn' });
      stage.disk.empty();
      expect(at((await turn.answer).message, 'result', 'stopReason')).toBe('end_turn');
      await client.until(
        'the news',
        ({ message }) => message.method === '_sidecar/log' && at(message, 'params', 'state') === 'ok',
      );
      await waitFor('all of it', () => reader.agentText(sessionId) === 'before and after');
      stage.agent.handlers.set('session/prompt', () => ({ stopReason: 'end_turn' }));
      await waitFor(
        'room for prompts',
        async () => {
          const prompt = { sessionId, prompt: [{ type: 'text', text: 'again' }] };
          return (await client.ask('session/prompt', prompt)).message.error === undefined;
        },
        { intervalMs: 200, timeoutMs: 30_000 },
      );
    }, 60_000);

    it('[DU6] text goes on as one open run that clients see', async () => {
      const stage = await setStage(testScope(), makeDisk(testScope()));
      const { client, life, sessionId } = stage;
      const turn = await startTurn(stage, 'work');
      life.say(AGENT_SESSION, 'start ');
      await waitFor('the start', () => client.agentText(sessionId) === 'start ');
      // Nothing but text waits: what cannot be cut stays open.
      stage.disk.fill();
      if (stage.disk.program === undefined) await usedUp(stage);
      const piece = 'y'.repeat(1000);
      for (let n = 0; n < 200; n++) life.say(AGENT_SESSION, piece);
      await waitFor(
        () => `200 KB of text; the sidecar said:\n${stage.sidecar.stderr.slice(-3000)}`,
        () => client.agentText(sessionId).length >= 200_000,
      );
      stage.disk.empty();
      life.reply(turn.request.message, { stopReason: 'end_turn' });
      expect(at((await turn.answer).message, 'result', 'stopReason')).toBe('end_turn');
      const reader = await stage.sidecar.unix();
      await reader.initialize();
      await reader.load(sessionId);
      expect(reader.agentText(sessionId) === client.agentText(sessionId)).toBe(true);
    }, 60_000);

    it('[DU11] a cancel still works: the agent hears it, and the prompt is answered with not_recorded', async () => {
      const stage = await setStage(testScope(), makeDisk(testScope()));
      const { client, life, sessionId } = stage;
      const turn = await startTurn(stage, 'work');
      const options = [{ optionId: 'y', name: 'Yes', kind: 'allow_once' }];
      const params = { sessionId: AGENT_SESSION, toolCall: { toolCallId: 't' }, options };
      life.send({ id: 'q', method: 'session/request_permission', params });
      await client.saw('session/request_permission');
      await stall(stage);
      // More than the sidecar would hold back for.
      for (let n = 0; n < 20; n++)
        life.update(AGENT_SESSION, { sessionUpdate: 'plan', entries: [], n, pad: 'z'.repeat(100_000) });
      client.notify('session/cancel', { sessionId });
      expect((await life.answerTo('q')).message.result).toEqual({ outcome: { outcome: 'cancelled' } });
      await life.saw('session/cancel');
      life.reply(turn.request.message, { stopReason: 'cancelled' });
      expect(kindOf((await turn.answer).message.error)).toBe('not_recorded');
      stage.disk.empty();
      await client.until(
        'the end in the log',
        ({ message }) => message.method === '_sidecar/turn' && at(message, 'params', 'state') === 'ended',
      );
    }, 60_000);

    it('[DU11] after --stall the agent is ended as in a crash; the ends are written when there is room', async () => {
      const stage = await setStage(testScope(), makeDisk(testScope()), ['--stall', '500ms']);
      const { client, life } = stage;
      const turn = await startTurn(stage, 'work');
      life.update(AGENT_SESSION, { sessionUpdate: 'tool_call', toolCallId: 't', title: 'T', status: 'in_progress' });
      await client.until('the tool', ({ text }) => text.includes('"tool_call"'));
      await stall(stage);
      expect(kindOf((await turn.answer).message.error)).toBe('not_recorded');
      await life.until('its end', () => life.closed);
      expect(client.closed).toBeUndefined();
      expect(client.received.some(({ text }) => text.includes('TOOL_OUTCOME_UNKNOWN'))).toBe(false);
      stage.disk.empty();
      await client.until('the closer', ({ text }) => text.includes('TOOL_OUTCOME_UNKNOWN'));
      await client.until('the end', ({ message }) => at(message, 'params', 'state') === 'ended');
    }, 60_000);
  });
}

it('[SS2] what the agent says while its session is imported is not lost', async () => {
  const stage = await setStage(testScope(), injected(testScope()));
  const { agent, client, life, sidecar, disk } = stage;
  agent.handlers.set('session/load', () => {
    life.say('old', 'replayed');
    // The commits of the import wait for room.
    disk.fill();
    return {};
  });
  const loaded = client.load('old');
  await waitFor(
    () => `the import to wait: ${sidecar.stderr}`,
    () => /"sessionId":"old".*the disk is full/.test(sidecar.stderr),
  );
  life.say('old', ' and late');
  life.say(AGENT_SESSION, 'read');
  await waitFor('that to be read', () => client.agentText(stage.sessionId) === 'read');
  disk.empty();
  await loaded;
  await waitFor('all of it', () => client.agentText('old') === 'replayed and late');
});

/** Uses up the disk and the ballast, and leaves the open run at its start. */
async function usedUp(stage: Stage): Promise<void> {
  const ballast = join(stage.disk.store, 'ballast');
  let n = 0;
  const given = (): boolean => {
    if (!existsSync(ballast)) return true;
    stage.life.update(AGENT_SESSION, { sessionUpdate: 'plan', entries: [], n: n++, pad: 'x'.repeat(100_000) });
    return false;
  };
  await waitFor('the ballast to be given', given, { intervalMs: 50 });
  stage.disk.fill();
  stage.life.say(AGENT_SESSION, 'start ');
}

describe('the store is not ours any more', () => {
  it('[DU7] replaced or removed: 1012 for every client, exit 4, and the next start goes on', async () => {
    const scope = testScope();
    const disk: Disk = { ...injected(scope), env: {} };
    const stage = await setStage(scope, disk);
    const socket = await stage.sidecar.webSocket();
    await socket.initialize({ sidecar: true });
    await socket.load(stage.sessionId);
    const data = join(disk.store, 'data.mdb');
    renameSync(data, `${data}.away`);
    const { sessionId } = stage;
    stage.client.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'x' }] }).catch(() => undefined);
    expect((await socket.untilClosed()).code).toBe(1012);
    expect(socket.received.some(({ text }) => text.includes('"state":"failed"'))).toBe(true);
    expect((await stage.sidecar.exited()).code).toBe(4);
    expect(stage.life.received.some(({ message }) => message.method === 'session/prompt')).toBe(false);
    renameSync(`${data}.away`, data);
    await stage.sidecar.start();
    const again = await stage.sidecar.unix();
    await again.initialize();
    await again.load(sessionId);
  }, 40_000);
});
