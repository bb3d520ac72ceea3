/**
 * Real traffic through the sidecar. `happened` of the recorded agent tells what was really written; a client that was
 * there from the start must have been told exactly that, and everybody else (who loads afterwards, who was cut off at any
 * single message and came back with the eventId that it saw last) must end with the same transcript.
 */
import { isDeepStrictEqual } from 'node:util';
import { describe, expect, it } from 'vitest';
import { transcriptOf } from '../../protocol/v1/fold.ts';
import type { Transcript } from '../../protocol/v1/transcript.ts';
import { at, eventIdOf, type Received, textAt, updateOf } from '../support/json.ts';
import type { RawClient } from '../support/raw-client.ts';
import { type Happened, RecordedAgent } from '../support/recorded-agent.ts';
import { livesWithNewSession } from '../support/recording.ts';
import { type Played, RecordingDriver } from '../support/recording-driver.ts';
import { Scope, testScope } from '../support/scope.ts';
import { sample, seededRandom } from '../support/seeded-random.ts';
import { Sidecar } from '../support/sidecar.ts';
import { promptChunks, storyOf, type Told, toldTo } from '../support/story.ts';
import { waitFor } from '../support/wait-for.ts';

interface Turn {
  readonly turnId: string;
  readonly prompt: readonly unknown[];
}

/**
 * What the agent's process did in one session, with the user's messages where it got them. A turn that was cancelled
 * right when it started never reached the agent; its message stands where the next one begins.
 */
function toldByAgent(happened: readonly Happened[], agentId: string, turns: readonly Turn[]): Told[] {
  const told: Told[] = [];
  const left = [...turns];
  for (const { dir, message } of happened) {
    if (at(message, 'params', 'sessionId') !== agentId) continue;
    const update = updateOf(message);
    if (dir === 'out' && update) told.push(update);
    if (dir !== 'in' || message.method !== 'session/prompt') continue;
    const prompt = at(message, 'params', 'prompt');
    const until = left.findIndex((turn) => isDeepStrictEqual(turn.prompt, prompt));
    expect(until, 'the turn of a prompt that the agent got').toBeGreaterThanOrEqual(0);
    for (const turn of left.splice(0, until + 1)) told.push(...promptChunks(turn.prompt, turn.turnId));
  }
  return told;
}

function isSynthetic({ message }: Received): boolean {
  return at(message, 'params', '_meta', 'sidecar', 'synthetic') === true;
}

function belongsTo(sessionId: string): (entry: Received) => boolean {
  return ({ message }) => at(message, 'params', 'sessionId') === sessionId;
}

function turnsOf(client: RawClient, sessionId: string, { prompts }: Played): Turn[] {
  return client.received
    .filter(({ message }) => message.method === '_sidecar/turn' && at(message, 'params', 'state') === 'running')
    .filter(belongsTo(sessionId))
    .map(({ message }) => ({
      turnId: textAt(message, 'params', 'turnId'),
      prompt: prompts.get(textAt(message, 'params', 'promptId')) ?? [],
    }));
}

function expectSame(got: Transcript, wanted: Transcript, what: string): void {
  if (!isSame(got, wanted)) expect(terminalsMarked(got), what).toEqual(terminalsMarked(wanted));
}

function isSame(got: Transcript, wanted: Transcript): boolean {
  return isDeepStrictEqual(terminalsMarked(got), terminalsMarked(wanted));
}

/**
 * A terminal is shown by the client that it runs at; everybody else is shown text in its place, and what it printed
 * (in these recordings nothing).
 */
function terminalsMarked(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(terminalsMarked);
  if (typeof value !== 'object' || value === null) return value;
  const text = at(value, 'content', 'text');
  const elsewhere = text === '' || (typeof text === 'string' && text.startsWith('[A terminal that runs'));
  if (at(value, 'type') === 'terminal' || (at(value, 'type') === 'content' && elsewhere)) return 'a terminal';
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, terminalsMarked(member)]));
}

/** A client that was cut after the `seen` first messages of another and came back while the agent was still at work. */
interface Resumed {
  readonly client: RawClient;
  readonly seen: number;
  readonly sessionId: string;
}

/** Cuts at messages while the recording still plays; each cut client stays to the end. */
function cutWhilePlaying(sidecar: Sidecar, scope: Scope, live: RawClient): { done: () => Promise<Resumed[]> } {
  const random = seededRandom(7);
  const cuts: Promise<Resumed>[] = [];
  live.onReceived = ({ message }) => {
    const eventId = eventIdOf(message);
    const sessionId = at(message, 'params', 'sessionId');
    if (eventId === undefined || typeof sessionId !== 'string' || cuts.length >= 40 || random() > 0.2) return;
    const seen = live.received.length;
    cuts.push(
      (async () => {
        const client = await sidecar.unix(scope);
        await client.initialize({ sidecar: { role: 'observer' } });
        const mode = at(await client.resume(sessionId, eventId), '_meta', 'sidecar', 'mode');
        expect(mode, `resumed while playing from ${eventId}`).toBe('tail');
        return { client, seen, sessionId };
      })(),
    );
  };
  return { done: () => Promise.all(cuts) };
}

describe('real traffic', () => {
  it.each(livesWithNewSession())('[CU6] [RP12] $name: nothing lost, repeated or reordered', async (life) => {
    const scope = testScope();
    const agent = await RecordedAgent.listen(scope, life);
    agent.paceMs = 1;
    const sidecar = await Sidecar.start(scope, { agent: agent.command });
    const live = await sidecar.unix();
    const resumed = cutWhilePlaying(sidecar, scope, live);
    const played = await new RecordingDriver(life, agent, live).play();
    live.onReceived = undefined;
    for (const [agentId, sessionId] of played.publicIds) {
      await expectLive(agent, live, agentId, sessionId, played);
      const whole = transcriptOf(toldTo(live.received, sessionId, played.prompts));
      await expectLate(sidecar, sessionId, whole);
      await expectCut(sidecar, live, sessionId, played, whole);
      for (const { client, seen, sessionId: of } of await resumed.done()) {
        if (of !== sessionId) continue;
        const view = toldTo(live.received.slice(0, seen), sessionId, played.prompts);
        await waitFor(
          () =>
            `a client that resumed at message ${seen} to have the rest:\n${client.received.map((r) => r.text.slice(0, 300)).join('\n')}`,
          () => isSame(transcriptOf([...view, ...toldTo(client.received, sessionId)]), whole),
          { timeoutMs: 5000 },
        );
      }
    }
  });
});

/** (a) The live client was told what the agent wrote, in its order. */
async function expectLive(
  agent: RecordedAgent,
  live: RawClient,
  agentId: string,
  sessionId: string,
  played: Played,
): Promise<void> {
  const story = (): Told[] => {
    const real = live.received.filter((entry) => !isSynthetic(entry));
    return storyOf(toldTo(real, sessionId, played.prompts));
  };
  const reference = (): Told[] => storyOf(toldByAgent(agent.happened, agentId, turnsOf(live, sessionId, played)));
  try {
    await waitFor('the live client to have it all', () => isDeepStrictEqual(story(), reference()), { timeoutMs: 3000 });
  } catch {
    expect(story()).toEqual(reference());
  }
}

/** (b) Who loads afterwards, with and without the extensions, gets the same. */
async function expectLate(sidecar: Sidecar, sessionId: string, whole: Transcript): Promise<void> {
  const scope = new Scope();
  for (const sidecarMeta of [undefined, true] as const) {
    const late = await sidecar.unix(scope);
    await late.initialize(sidecarMeta && { sidecar: sidecarMeta });
    const response = await late.load(sessionId);
    expect(at(response, '_meta', 'sidecar', 'mode')).toBe('full');
    expectSame(transcriptOf(toldTo(late.received, sessionId)), whole, 'a client that loads afterwards');
    for (const { message } of late.updates(sessionId)) expect(at(message, 'params', '_meta', 'isReplay')).toBe(true);
  }
  await scope.end();
}

/** (c) Who was cut at any single message and comes back with its eventId gets exactly the rest. */
async function expectCut(
  sidecar: Sidecar,
  live: RawClient,
  sessionId: string,
  played: Played,
  whole: Transcript,
): Promise<void> {
  const cuts = live.received.flatMap((entry, i) => {
    const eventId = eventIdOf(entry.message);
    return eventId !== undefined && belongsTo(sessionId)(entry) ? [{ eventId, seen: i + 1 }] : [];
  });
  expect(cuts.length).toBeGreaterThan(0);
  for (const { eventId, seen } of sample(cuts, 400, seededRandom(1))) {
    const scope = new Scope();
    const again = await sidecar.unix(scope);
    await again.initialize({ sidecar: { role: 'observer' } });
    const response = await again.resume(sessionId, eventId);
    const what = `cut at message ${seen}, cursor ${eventId}`;
    expect(at(response, '_meta', 'sidecar', 'mode'), what).toBe('tail');
    const told = [
      ...toldTo(live.received.slice(0, seen), sessionId, played.prompts),
      ...toldTo(again.received, sessionId),
    ];
    expectSame(transcriptOf(told), whole, what);
    await scope.end();
  }
}
