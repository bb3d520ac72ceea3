/** Pruning under load and under `kill -9`: the store stays whole, and nobody who is attached loses a word. */
import { expect, it } from 'vitest';
import { at } from '../support/json.ts';
import { Scope, testScope } from '../support/scope.ts';
import { streamAgentCommand } from '../support/scripted-agent.ts';
import { seededRandom } from '../support/seeded-random.ts';
import { runCommand, Sidecar } from '../support/sidecar.ts';
import { type StreamOrder, streamText } from '../support/stream-order.ts';

const ORDER: StreamOrder = { label: 'word', chunks: 100, toolEvery: 20, batch: 10, everyMs: 5 };

it('[RT1] [RT3] a session that is cut all the time while it streams is complete for those who are on it', async () => {
  const scope = testScope();
  const sidecar = await Sidecar.start(scope, { agent: streamAgentCommand() });
  const driver = await sidecar.unix();
  await driver.initialize();
  const sessionId = await driver.newSession();
  const watcher = await sidecar.webSocket();
  await watcher.initialize();
  await watcher.load(sessionId);
  const pruning = { on: true };
  let cuts = 0;
  const pruner = (async () => {
    while (pruning.on) {
      const result = await runCommand(['prune', sessionId, '--retain-events', '5', '--store', sidecar.store]);
      expect(result.code, result.stderr).toBe(0);
      if (result.stdout !== '') cuts++;
    }
  })();
  const turns = 60;
  for (let turn = 0; turn < turns; turn++) {
    await driver.prompt(sessionId, JSON.stringify(ORDER));
    if (turn % 10 === 5) {
      const cursor = watcher.cursors.get(sessionId);
      const late = await sidecar.unix();
      await late.initialize();
      const answer = await late.load(sessionId, cursor);
      expect(['tail', 'full']).toContain(at(answer, '_meta', 'sidecar', 'mode'));
      late.cut();
    }
  }
  pruning.on = false;
  await pruner;
  expect(cuts).toBeGreaterThan(2);
  const whole = streamText(ORDER).repeat(turns);
  await watcher.until('the whole text', () => watcher.agentText(sessionId).length >= whole.length);
  expect(watcher.agentText(sessionId)).toBe(whole);
  expect(driver.agentText(sessionId)).toBe(whole);
  const verified = await runCommand(['verify', '--store', sidecar.store]);
  expect(verified.stdout).toContain('all is well');
});

it('[RT1] killed in the middle of pruning, again and again, the store is whole', async () => {
  const scope = testScope();
  const random = seededRandom(7);
  const sidecar = await Sidecar.start(scope, { agent: streamAgentCommand(), args: ['--retain-events', '10'] });
  let sessionId: string | undefined;
  for (let round = 0; round < 5; round++) {
    const life = new Scope();
    const client = await sidecar.unix(life);
    await client.initialize();
    if (sessionId === undefined) sessionId = await client.newSession();
    else await client.load(sessionId);
    for (let turn = 0; turn < 8; turn++) await client.prompt(sessionId, JSON.stringify(ORDER));
    const pruned = runCommand(['prune', '--retain-events', '3', '--store', sidecar.store]);
    await new Promise((resolve) => setTimeout(resolve, 100 + random() * 500));
    await sidecar.kill();
    await pruned;
    await life.end();
    const verified = await runCommand(['verify', '--store', sidecar.store]);
    expect(verified.stdout).toContain('all is well');
    await sidecar.start();
  }
  const shown = await runCommand(['show', sessionId ?? '', '--json', '--store', sidecar.store]);
  expect(at(JSON.parse(shown.stdout), 'events')).toBeLessThan(200);
}, 120_000);
