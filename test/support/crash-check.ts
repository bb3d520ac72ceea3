/**
 * `kill -9` of the sidecar at random moments, again and again on one store, while clients watch a stream. Whatever eventId
 * any client ever saw was durable before it was shown: it is in the log afterwards, and who comes back with it gets the
 * rest. A cursor inside a run that was lost with the process says so (`diverged`). Throws when it is not so.
 */
import { expect } from 'vitest';
import { type EventId, parseEventId } from '../../protocol/event-id.ts';
import { openLmdbEventLogReadOnly } from '../../storage/lmdb-event-log.ts';
import { at, eventIdOf, updateOf } from './json.ts';
import type { RawClient } from './raw-client.ts';
import { Scope } from './scope.ts';
import { streamAgentCommand } from './scripted-agent.ts';
import { seededRandom } from './seeded-random.ts';
import { Sidecar } from './sidecar.ts';
import { type StreamOrder, streamText } from './stream-order.ts';

/** What one client saw of one session before the kill. */
interface Witness {
  readonly sessionId: string;
  readonly eventIds: readonly string[];
  /** The text at each eventId that an update carried. */
  readonly textAt: ReadonlyMap<string, string>;
  readonly text: string;
}

function witnessOf(client: RawClient, sessionId: string): Witness {
  const eventIds: string[] = [];
  const textAt = new Map<string, string>();
  let text = '';
  for (const { message } of client.received) {
    const update = updateOf(message);
    if (update?.['sessionUpdate'] === 'agent_message_chunk') text += String(at(update, 'content', 'text'));
    const eventId = eventIdOf(message);
    if (eventId === undefined) continue;
    eventIds.push(eventId);
    textAt.set(eventId, text);
  }
  return { sessionId, eventIds, textAt, text };
}

function parsed(eventId: string): EventId {
  const found = parseEventId(eventId);
  if (!found) throw new Error(`${eventId} is no event id`);
  return found;
}

/** A new session with a stream and two clients; killed at a random moment. */
async function liveAndDie(sidecar: Sidecar, order: StreamOrder, afterMs: number): Promise<Witness[]> {
  const scope = new Scope();
  const driver = await sidecar.unix(scope);
  await driver.initialize({ sidecar: true });
  const sessionId = await driver.newSession();
  const watcher = await sidecar.webSocket(scope);
  await watcher.initialize();
  await watcher.load(sessionId);
  driver.prompt(sessionId, JSON.stringify(order)).catch(() => undefined);
  await new Promise((resolve) => setTimeout(resolve, afterMs));
  await sidecar.kill();
  await Promise.all([driver.untilClosed(), watcher.untilClosed()]);
  const witnesses = [witnessOf(driver, sessionId), witnessOf(watcher, sessionId)];
  await scope.end();
  return witnesses;
}

/** How the witnesses' cursors fared: settled ones, and those inside a run that was kept or lost. */
interface Counts {
  settled: number;
  kept: number;
  diverged: number;
}

/** The session after the restart, seen by a client that loads it and by the witnesses that come back. */
async function comeBack(sidecar: Sidecar, witnesses: readonly Witness[], whole: string, count: Counts): Promise<void> {
  const scope = new Scope();
  const fresh = await sidecar.unix(scope);
  await fresh.initialize();
  const { sessionId } = witnesses[0] as Witness;
  await fresh.load(sessionId);
  const kept = fresh.agentText(sessionId);
  expect(whole.startsWith(kept), `what was kept is the beginning of what was said: ${kept.slice(-40)}`).toBe(true);
  for (const witness of witnesses) {
    expect(whole.startsWith(witness.text)).toBe(true);
    for (const eventId of [witness.eventIds.findLast((id) => parsed(id).form === 'settled'), witness.eventIds.at(-1)]) {
      if (eventId === undefined) continue;
      const before = witness.textAt.get(eventId) ?? '';
      const again = await sidecar.unix(scope);
      await again.initialize();
      const meta = at(await again.resume(sessionId, eventId), '_meta', 'sidecar');
      const rest = again.agentText(sessionId);
      count[parsed(eventId).form === 'settled' ? 'settled' : at(meta, 'mode') === 'tail' ? 'kept' : 'diverged']++;
      if (at(meta, 'mode') === 'tail') expect(before + rest === kept, `after ${eventId}`).toBe(true);
      else {
        expect(parsed(eventId).form, 'a settled id is never lost').toBe('chunk');
        expect(meta).toMatchObject({ mode: 'full', reason: 'diverged' });
        expect(rest === kept).toBe(true);
      }
      if (parsed(eventId).form === 'settled') expect(kept.startsWith(before)).toBe(true);
    }
  }
  await scope.end();
}

export interface CrashResult extends Counts {
  /** Clients that had seen text when the sidecar was killed. */
  readonly sawText: number;
}

export async function killAgainAndAgain(scope: Scope, kills: number, program?: string): Promise<CrashResult> {
  const sidecar = await Sidecar.start(scope, {
    agent: streamAgentCommand(),
    ...(program !== undefined && { program }),
  });
  const random = seededRandom(3);
  const all: Witness[] = [];
  const count: Counts = { settled: 0, kept: 0, diverged: 0 };
  for (let n = 0; n < kills; n++) {
    // Long messages, short ones between tools, and everything at once.
    const toolEvery = [0, 7, 60][n % 3] ?? 0;
    const order: StreamOrder = { label: `${n}.`, chunks: 60_000, batch: n % 2 === 0 ? 5 : 400, everyMs: 1, toolEvery };
    const witnesses = await liveAndDie(sidecar, order, random() * 90);
    await sidecar.start();
    await comeBack(sidecar, witnesses, streamText(order), count);
    all.push(...witnesses);
  }
  await sidecar.kill();
  await expectAllKept(sidecar.store, all);
  return { ...count, sawText: all.filter(({ text }) => text !== '').length };
}

async function expectAllKept(store: string, witnesses: readonly Witness[]): Promise<void> {
  const log = await openLmdbEventLogReadOnly(store);
  const lastOf = new Map<string, number>();
  for (const row of log.rows()) {
    const last = log.lastSeq(row.num);
    const seqs: number[] = [];
    const scanned = log.scan(row.num, 1, last, (seq) => seqs.push(seq) > 0);
    expect(scanned).toEqual({ outcome: 'end' });
    expect(seqs).toEqual(Array.from({ length: last }, (_, i) => i + 1));
    lastOf.set(row.logId, last);
  }
  await log.close();
  let seen = 0;
  for (const { eventIds } of witnesses) {
    for (const eventId of eventIds) {
      const id = parsed(eventId);
      // A chunk of event n shows that n - 1 is there.
      const promised = id.form === 'settled' ? id.seq : id.seq - 1;
      expect(lastOf.get(id.logId), `${eventId} was shown`).toBeGreaterThanOrEqual(promised);
      seen++;
    }
  }
  expect(seen).toBeGreaterThan(0);
}
