/**
 * Clients attach at random moments of a stream that runs at full speed. Whatever the way in (load, resume with a cursor of
 * somebody who was there, resume from here on), each sees every character once: what it had and what it gets is the text.
 */
import { describe, expect, it } from 'vitest';
import { at } from '../support/json.ts';
import type { RawClient } from '../support/raw-client.ts';
import { Scope, testScope } from '../support/scope.ts';
import { streamAgentCommand } from '../support/scripted-agent.ts';
import { seededRandom } from '../support/seeded-random.ts';
import { Sidecar } from '../support/sidecar.ts';
import { type StreamOrder, streamText } from '../support/stream-order.ts';

const ROUNDS = 8;
const PER_ROUND = 25;
const CHUNKS = 40_000;

interface Attached {
  readonly client: RawClient;
  readonly how: string;
  /** What it had seen before, through another client. */
  readonly had: string;
}

async function attach(
  sidecar: Sidecar,
  scope: Scope,
  live: RawClient,
  sessionId: string,
  way: number,
): Promise<Attached> {
  const client = await (way % 2 === 0 ? sidecar.unix(scope) : sidecar.webSocket(scope));
  await client.initialize(way % 3 === 0 ? { sidecar: true } : {});
  if (way % 5 < 2) {
    await client.load(sessionId);
    return { client, how: 'load', had: '' };
  }
  if (way % 5 === 2) {
    await client.resume(sessionId);
    return { client, how: 'resume', had: '' };
  }
  const cursor = live.cursors.get(sessionId);
  const had = live.agentText(sessionId);
  const response = await (way % 5 === 3 ? client.resume(sessionId, cursor) : client.load(sessionId, cursor));
  expect(at(response, '_meta', 'sidecar', 'mode'), `cursor ${cursor}`).toBe('tail');
  return { client, how: `after ${cursor}`, had };
}

describe('200 clients attach while an agent streams at full speed', () => {
  it.each([
    { name: 'text alone', toolEvery: 0 },
    { name: 'text and tool calls', toolEvery: 200 },
  ])('$name: each sees every character exactly once', async ({ toolEvery }) => {
    const outer = testScope();
    const sidecar = await Sidecar.start(outer, { agent: streamAgentCommand() });
    const random = seededRandom(2);
    const live = await sidecar.unix();
    await live.initialize({ sidecar: true });
    let during = 0;
    for (let round = 0; round < ROUNDS / 2; round++) {
      const scope = new Scope();
      const sessionId = await live.newSession();
      const order: StreamOrder = { label: `r${round}.`, chunks: CHUNKS, toolEvery };
      const whole = streamText(order);
      let over = false;
      const done = live.prompt(sessionId, JSON.stringify(order)).then(() => (over = true));
      const attaching: Promise<Attached>[] = [];
      for (let i = 0; i < PER_ROUND; i++) {
        await live.until('some text', () => live.received.length > 0);
        if (i % 4 === 0) await new Promise((resolve) => setTimeout(resolve, random() * 25));
        if (!over) during++;
        attaching.push(attach(sidecar, scope, live, sessionId, round * PER_ROUND + i));
      }
      const attached = await Promise.all(attaching);
      await done;
      await live.until('the whole text', () => live.agentText(sessionId).length >= whole.length);
      expect(live.agentText(sessionId) === whole).toBe(true);
      for (const { client, how, had } of attached) await expectOnce(client, how, had, sessionId, whole);
      await scope.end();
    }
    // If the stream were over before most of them came, this would show nothing.
    expect(during).toBeGreaterThan((ROUNDS / 2) * PER_ROUND * 0.25);
  });
});

async function expectOnce(
  client: RawClient,
  how: string,
  had: string,
  sessionId: string,
  whole: string,
): Promise<void> {
  const seen = (): string => had + client.agentText(sessionId);
  if (how === 'resume') {
    await client
      .until('the end of the text', () => whole.endsWith(client.agentText(sessionId).slice(-20)), { timeoutMs: 5000 })
      .catch(() => undefined);
    const rest = client.agentText(sessionId);
    expect(
      rest === whole.slice(whole.length - rest.length),
      `${how}: ${rest.length} characters are the end of the text`,
    ).toBe(true);
    return;
  }
  await client
    .until('the whole text', () => seen().length >= whole.length, { timeoutMs: 10_000 })
    .catch(() => undefined);
  const text = seen();
  let where = 0;
  while (where < text.length && text[where] === whole[where]) where++;
  const context =
    where === text.length
      ? `${text.length} of ${whole.length} characters`
      : `differs at ${where}: ${text.slice(where - 20, where + 20)}`;
  expect(text === whole, `${how}: ${context}`).toBe(true);
}
