/**
 * Clients attach at random moments of a stream that runs at full speed. Whatever the way in (load, resume with a cursor of
 * somebody who was there, resume from here on), each must see every character once: what it had and what it gets is the
 * text. Throws when one did not.
 */
import { expect } from 'vitest';
import { at, textAt } from './json.ts';
import type { RawClient } from './raw-client.ts';
import { Scope } from './scope.ts';
import { streamAgentCommand } from './scripted-agent.ts';
import { seededRandom } from './seeded-random.ts';
import { Sidecar } from './sidecar.ts';
import { type StreamOrder, streamText } from './stream-order.ts';

export interface AttachCheck {
  readonly rounds: number;
  readonly perRound: number;
  readonly chunks: number;
  readonly toolEvery: number;
  /** Another build of the sidecar. */
  readonly program?: string;
}

interface Attached {
  readonly client: RawClient;
  /** For the message of a failure. */
  readonly how: string;
  /** What it had seen before, through another client. */
  readonly had: string;
  /** Resumed from here on: the cursor that it was given. */
  readonly from?: string;
  /** The stream was still running when it was attached. */
  readonly during: boolean;
}

interface Streaming {
  readonly sidecar: Sidecar;
  readonly scope: Scope;
  readonly live: RawClient;
  readonly sessionId: string;
  readonly whole: string;
}

async function attach({ sidecar, scope, live, sessionId, whole }: Streaming, way: number): Promise<Attached> {
  const client = await (way % 2 === 0 ? sidecar.unix(scope) : sidecar.webSocket(scope));
  await client.initialize(way % 3 === 0 ? { sidecar: true } : {});
  const attached = (how: string, had = '', from?: string): Attached => {
    const during = live.agentText(sessionId).length < whole.length;
    return { client, how, had, during, ...(from !== undefined && { from }) };
  };
  if (way % 5 < 2) {
    await client.load(sessionId);
    return attached('load');
  }
  if (way % 5 === 2) {
    const response = await client.resume(sessionId);
    return attached('resume', '', textAt(response, '_meta', 'sidecar', 'eventId'));
  }
  const cursor = live.cursors.get(sessionId);
  const had = live.agentText(sessionId);
  const response = await (way % 5 === 3 ? client.resume(sessionId, cursor) : client.load(sessionId, cursor));
  expect(at(response, '_meta', 'sidecar', 'mode'), `cursor ${cursor}`).toBe('tail');
  return attached(`after ${cursor}`, had);
}

/** Where two texts part, for the message of a failure. */
function difference(text: string, whole: string): string {
  let where = 0;
  while (where < text.length && text[where] === whole[where]) where++;
  if (where === text.length) return `${text.length} of ${whole.length} characters`;
  return `differs at ${where}: ${text.slice(Math.max(0, where - 20), where + 20)}`;
}

/** Equality of texts that are too long to be printed. */
function expectEqual(what: string, got: string, wanted: string): void {
  if (got !== wanted) throw new Error(`${what}: ${difference(got, wanted)}`);
}

async function expectOnce(streaming: Streaming, attached: Attached): Promise<void> {
  const { sessionId, sidecar, scope } = streaming;
  const { client, how, from } = attached;
  let wanted = streaming.whole.slice(attached.had.length);
  if (from !== undefined) {
    const again = await sidecar.unix(scope);
    await again.initialize();
    await again.resume(sessionId, from);
    wanted = again.agentText(sessionId);
    expect(streaming.whole.endsWith(wanted), `${how}: what follows ${from} is the end of the text`).toBe(true);
  }
  const complete = (): boolean => client.agentText(sessionId).length >= wanted.length;
  if (!complete()) await client.until('the whole text', complete, { timeoutMs: 3000 }).catch(() => undefined);
  const got = client.agentText(sessionId);
  expectEqual(how, got, wanted);
}

async function round(streaming: Streaming, order: StreamOrder, check: AttachCheck, n: number): Promise<number> {
  const { live, sessionId, whole } = streaming;
  const random = seededRandom(n);
  const done = live.prompt(sessionId, JSON.stringify(order));
  done.catch(() => undefined);
  await live.until('some text', () => live.agentText(sessionId) !== '');
  const attaching: Promise<Attached>[] = [];
  for (let i = 0; i < check.perRound; i++) {
    if (random() < 0.5) await new Promise((resolve) => setTimeout(resolve, random() * 8));
    attaching.push(attach(streaming, n * check.perRound + i));
  }
  const attached = await Promise.all(attaching);
  await done;
  expectEqual('live', live.agentText(sessionId), whole);
  for (const one of attached) await expectOnce(streaming, one);
  return attached.filter(({ during }) => during).length;
}

/** Resolves to the number of clients that were attached while the agent was still writing. */
export async function attachWhileStreaming(outer: Scope, check: AttachCheck): Promise<number> {
  const { program, rounds, chunks, toolEvery } = check;
  const sidecar = await Sidecar.start(outer, {
    agent: streamAgentCommand(),
    ...(program !== undefined && { program }),
  });
  const live = await sidecar.unix();
  await live.initialize({ sidecar: true });
  let during = 0;
  for (let n = 0; n < rounds; n++) {
    const scope = new Scope();
    try {
      const order: StreamOrder = { label: `r${n}.`, chunks, toolEvery };
      const streaming = { sidecar, scope, live, sessionId: await live.newSession(), whole: streamText(order) };
      during += await round(streaming, order, check, n);
    } finally {
      await scope.end();
    }
  }
  return during;
}
