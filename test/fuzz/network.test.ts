/**
 * A bad network between clients that know nothing of it and a real sidecar, while turns with tools and approvals run.
 * NETWORK_DROPS sets how many connections are lost (`npm run fuzz:network` takes 1000), NETWORK_SEED repeats a run.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { transcriptOf } from '../../protocol/v1/fold.ts';
import { at } from '../support/json.ts';
import type { NetworkOrder } from '../support/network-agent.ts';
import { type NetworkClient, connectClient, streamClient, toldBy } from '../support/network-clients.ts';
import { NetworkProxy } from '../support/network-proxy.ts';
import type { RawClient } from '../support/raw-client.ts';
import { testScope } from '../support/scope.ts';
import { ROOT } from '../support/scripted-agent.ts';
import { seededRandom } from '../support/seeded-random.ts';
import { Sidecar } from '../support/sidecar.ts';
import { tempDir } from '../support/temp-dir.ts';
import { waitFor } from '../support/wait-for.ts';

const DROPS = Number(process.env['NETWORK_DROPS'] ?? 40);
const KILLS = Number(process.env['NETWORK_KILLS'] ?? 5);
const SEED = Number(process.env['NETWORK_SEED'] ?? 20261130);
const AGENT = [process.execPath, join(ROOT, 'dist/test/support/network-agent.js')];
const HEARTBEAT = '200ms';

interface Stage {
  readonly sidecar: Sidecar;
  readonly network: NetworkProxy;
  readonly clients: NetworkClient[];
  readonly random: () => number;
  /** Labels of the prompts that reached an agent, in order. */
  readonly runs: () => string[];
}

async function setUp(): Promise<Stage> {
  const scope = testScope();
  const random = seededRandom(SEED);
  const runsFile = join(tempDir(scope), 'runs');
  const sidecar = await Sidecar.start(scope, {
    agent: AGENT,
    args: ['--heartbeat', HEARTBEAT, '--log-level', 'warn'],
    env: { NETWORK_AGENT_RUNS: runsFile },
  });
  const network = await NetworkProxy.listen(scope, portOf(sidecar));
  const url = `ws://127.0.0.1:${network.port}/acp`;
  const think = (): Promise<void> => sleep(random() * 60);
  const clients = [
    await connectClient(scope, ['connect', url, '--heartbeat', HEARTBEAT], think),
    await streamClient(scope, url, think),
  ];
  return { sidecar, network, clients, random, runs: () => readFileSync(runsFile, 'utf8').trim().split('\n') };
}

function portOf(sidecar: Sidecar): number {
  return Number(new URL(sidecar.wsUrl).port);
}

/** One fault; resolves to the connections that it cost. */
async function fault(network: NetworkProxy, random: () => number): Promise<number> {
  const kind = random();
  if (kind < 0.5) return network.cut();
  if (kind < 0.6) return network.halfOpen();
  if (kind < 0.7) {
    network.refusing = true;
    const cut = network.cut();
    await sleep(random() * 100);
    network.refusing = false;
    return cut;
  }
  if (kind < 0.8) {
    // Attempts overtake each other.
    network.acceptDelayMs = () => random() * 80;
    const cut = network.cut();
    await sleep(100);
    network.acceptDelayMs = () => 0;
    return cut;
  }
  if (kind < 0.9) {
    network.stall(random() * 120);
    return 0;
  }
  network.delayMs = random() * 20;
  network.throttleBytes = 200 + Math.floor(random() * 2000);
  await sleep(60);
  network.delayMs = 0;
  network.throttleBytes = 0;
  return network.cut();
}

interface Played {
  readonly sessionId: string;
  readonly labels: string[];
  readonly answers: { readonly result?: unknown; readonly error?: unknown }[];
}

/** Prompts until `enough`. */
async function play(client: NetworkClient, enough: () => boolean, letter: string): Promise<Played> {
  const played: Played = { sessionId: await client.newSession(), labels: [], answers: [] };
  const prompt = async (label: string, chunks: number): Promise<void> => {
    const order: NetworkOrder = { label, chunks, everyMs: 6, askEvery: 2 };
    const at = played.labels.push(label) - 1;
    played.answers[at] = await client.prompt(played.sessionId, JSON.stringify(order));
  };
  // Every other time the next prompt is sent while the turn runs, and waits for it.
  for (let turn = 0; turn === 0 || !enough(); turn++) {
    const both = [prompt(`${letter}${turn}.`, 40)];
    if (turn % 2 === 1) both.push(prompt(`${letter}${turn}.5.`, 40));
    await Promise.all(both);
  }
  return played;
}

async function observer(sidecar: Sidecar): Promise<RawClient> {
  const raw = await sidecar.unix();
  await raw.initialize({ sidecar: { role: 'observer' } });
  return raw;
}

describe('a bad network', () => {
  it(`[RC1] [RC2] [RC3] [RC4] ${DROPS} drops: each client ends with the transcript of one that never lost its connection`, {
    timeout: 60_000 + DROPS * 1500,
  }, async () => {
    const { sidecar, network, clients, random, runs } = await setUp();
    let drops = 0;
    const playing = clients.map((client, i) => play(client, () => drops >= DROPS, 'ab'[i] ?? 'x'));
    const all = Promise.all(playing);
    const done = all.then(
      () => true,
      () => true,
    );
    while (drops < DROPS && !(await Promise.race([done, Promise.resolve(false)]))) {
      await sleep(20 + random() * 150);
      if (network.open > 0) drops += await fault(network, random);
    }
    const played = await all;
    const labels = played.flatMap((entry) => entry.labels);
    expect(runs().toSorted(), 'every prompt ran once').toEqual(labels.toSorted());
    const steady = await observer(sidecar);
    for (const [i, { sessionId, answers }] of played.entries()) {
      const client = clients[i] as NetworkClient;
      expect(answers.map((answer) => at(answer.result, 'stopReason') ?? answer.error)).toEqual(
        answers.map(() => 'end_turn'),
      );
      await steady.load(sessionId);
      const recorded = steady.updates(sessionId).map(({ message }) => ({ params: message.params ?? {} }));
      expect(transcriptOf(toldBy(client.updates, sessionId)), `${client.name}, seed ${SEED}`).toEqual(
        transcriptOf(toldBy(recorded, sessionId)),
      );
      expect(
        [...client.cards.values()].filter((shown) => shown !== 1),
        'every approval was shown once',
      ).toEqual([]);
      expect(client.cards.size).toBe(answers.length * 2);
      expect(
        [...client.reads.values()].filter((times) => times !== 1),
        'every file was read once',
      ).toEqual([]);
      expect(client.reads.size).toBe(answers.length * 2);
      const own = client.updates.filter(({ params }) => at(params, 'update', 'sessionUpdate') === 'user_message_chunk');
      expect(own, 'a client is not shown its own prompts').toEqual([]);
      expect(JSON.stringify(recorded)).toContain('content of /');
    }
  });

  it(`[RC1] [RC2] ${KILLS} times kill -9 of the sidecar: what was recorded comes once, and each prompt is answered`, {
    timeout: 60_000 + KILLS * 5000,
  }, async () => {
    const { sidecar, network, clients, random, runs } = await setUp();
    let kills = 0;
    const playing = Promise.all(clients.map((client, i) => play(client, () => kills >= KILLS, 'ab'[i] ?? 'x')));
    while (kills < KILLS) {
      await sleep(150 + random() * 400);
      await sidecar.restart();
      network.targetPort = portOf(sidecar);
      network.cut();
      kills++;
    }
    const played = await playing;
    const ran = runs();
    expect(new Set(ran).size, 'no prompt ran twice').toBe(ran.length);
    const steady = await observer(sidecar);
    for (const [i, { sessionId, labels, answers }] of played.entries()) {
      const client = clients[i] as NetworkClient;
      for (const [turn, answer] of answers.entries()) {
        const data = at(answer.error, 'data');
        const told = at(answer.result, 'stopReason') ?? at(data, 'kind');
        expect(['end_turn', 'interrupted'], JSON.stringify(answer)).toContain(told);
        if (told === 'end_turn' || at(data, 'code') === 'PROMPT_OUTCOME_UNKNOWN') continue;
        expect(ran, 'a prompt that is said not to have been sent').not.toContain(labels[turn]);
      }
      await steady.load(sessionId);
      const recorded = wordsOf(
        steady.updates(sessionId).map(({ message }) => ({ params: message.params ?? {} })),
        sessionId,
      );
      const seen = wordsOf(client.updates, sessionId);
      const known = new Set(recorded);
      expect(
        seen.filter((word) => known.has(word)),
        `${client.name}, seed ${SEED}`,
      ).toEqual(recorded);
    }
    expect(
      played.flatMap(({ answers }) => answers).filter(({ error }) => error !== undefined).length,
      'some turn was interrupted',
    ).toBeGreaterThan(0);
    await waitFor('connections', () => network.open === clients.length);
  });
});

/** `a0.7;` of every chunk of the agent, in order. */
function wordsOf(updates: readonly { readonly params: Record<string, unknown> }[], sessionId: string): string[] {
  return toldBy(updates, sessionId).flatMap((update) => {
    const text = at(update, 'content', 'text');
    return typeof text === 'string' ? (text.match(/[ab]\d+\.(?:5\.)?\d+;/g) ?? []) : [];
  });
}
