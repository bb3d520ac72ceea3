/**
 * Random streams through a real sidecar, with random moments at which clients are cut, come late, or come back: whatever
 * they had plus whatever they get folds to the same transcript, and the log holds what the rules of coalescing say.
 */
import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import { comparePositions, parseEventId, positionOf } from '../../protocol/event-id.ts';
import { emptyView, foldMessage } from '../../protocol/v1/view.ts';
import { transcriptOf } from '../../protocol/v1/fold.ts';
import type { Transcript } from '../../protocol/v1/transcript.ts';
import { parseWire } from '../../protocol/wire-text.ts';
import { decodeRecord } from '../../storage/event-codec.ts';
import { openLmdbEventLogReadOnly } from '../../storage/lmdb-event-log.ts';
import { at, eventIdOf, type Message, textAt, updateOf } from '../support/json.ts';
import type { RawClient } from '../support/raw-client.ts';
import { LogModel, anyUpdate, type Update } from '../support/random-updates.ts';
import { Scope } from '../support/scope.ts';
import { type AgentLife, ScriptedAgent } from '../support/scripted-agent.ts';
import { Sidecar } from '../support/sidecar.ts';
import { promptChunks, toldTo } from '../support/story.ts';

const RUNS = Number(process.env['FUZZ_RUNS'] ?? 120);
const SEED = Number(process.env['FUZZ_SEED'] ?? 20261130);

/** What happens in a turn: the agent writes, or everybody gets a moment, or a client comes. */
type Op = { readonly do: 'write'; readonly update: Update } | { readonly do: 'breathe' } | { readonly do: 'join' };

const ops: fc.Arbitrary<Op[]> = fc.array(
  fc.oneof(
    { weight: 20, arbitrary: anyUpdate.map((update) => ({ do: 'write' as const, update })) },
    { weight: 4, arbitrary: fc.constant({ do: 'breathe' as const }) },
    { weight: 1, arbitrary: fc.constant({ do: 'join' as const }) },
  ),
  { minLength: 1, maxLength: 60 },
);

const script = fc.record({
  turns: fc.array(ops, { minLength: 1, maxLength: 3 }),
  cuts: fc.array(fc.double({ min: 0, max: 0.999, noNaN: true }), { minLength: 1, maxLength: 4 }),
});

interface Played {
  readonly sessionId: string;
  readonly expected: Update[];
  readonly joined: RawClient[];
  readonly model: LogModel;
}

/** The eventIds that a client was sent of a session, its responses' too, never go back. */
function expectForward({ received, cursors }: RawClient, sessionId: string): void {
  const logId = parseEventId(cursors.get(sessionId))?.logId;
  let last = '';
  let position = { seq: 0, offset: 0 };
  for (const { message, text } of received) {
    const id = parseEventId(eventIdOf(message));
    if (id?.logId !== logId || id === undefined) continue;
    expect(comparePositions(positionOf(id), position), `${last}\n${text}`).toBeGreaterThanOrEqual(0);
    position = positionOf(id);
    last = text;
  }
  expect(last).not.toBe('');
}

describe('random streams', () => {
  const scope = new Scope();
  const models = new Map<string, LogModel>();
  let sidecar: Sidecar;
  let life: AgentLife;
  let live: RawClient;
  let prompts = 0;

  beforeAll(async () => {
    const agent = await ScriptedAgent.listen(scope);
    sidecar = await Sidecar.start(scope, { agent: agent.command });
    live = await sidecar.unix();
    await live.initialize({ sidecar: true });
    life = await agent.life();
    return () => scope.end();
  });

  async function connect(inner: Scope, optIn: boolean): Promise<RawClient> {
    const client = await sidecar.unix(inner);
    await client.initialize(optIn ? { sidecar: { role: 'observer' } } : {});
    return client;
  }

  async function play(inner: Scope, turns: readonly Op[][]): Promise<Played> {
    const sessionId = await live.newSession();
    const made = life.received.findLast(({ message }) => message.method === 'session/new')?.message as Message;
    // The scripted agent counts its sessions; the newest is the one just made.
    const agentId = `agent-session-${life.received.filter(({ message }) => message.method === made.method).length}`;
    const played: Played = { sessionId, expected: [], joined: [], model: new LogModel() };
    models.set(sessionId, played.model);
    for (const turn of turns) await playTurn(inner, turn, agentId, played);
    return played;
  }

  async function playTurn(inner: Scope, turn: readonly Op[], agentId: string, played: Played): Promise<void> {
    const { sessionId, expected, joined, model } = played;
    const block = { type: 'text', text: '§ prompt' };
    const answer = live.ask('session/prompt', { sessionId, prompt: [block] });
    const request = await life.saw('session/prompt', prompts++);
    const begins = expected.length;
    for (const op of turn) {
      if (op.do === 'write') {
        life.update(agentId, op.update);
        expected.push(op.update);
        model.take(op.update);
      } else if (op.do === 'breathe') await new Promise((resolve) => setTimeout(resolve, 2));
      else {
        const late = await connect(inner, joined.length % 2 === 0);
        await late.load(sessionId);
        joined.push(late);
      }
    }
    life.reply(request.message, { stopReason: 'end_turn' });
    const turnId = textAt((await answer).message, 'result', '_meta', 'sidecar', 'turnId');
    expected.splice(begins, 0, ...(promptChunks([block], turnId) as Update[]));
    model.endTurn();
  }

  /** The prompts of the live client, which it is not shown: at the turn's start. */
  function liveTold(sessionId: string, until = live.received.length): ReturnType<typeof toldTo> {
    const told: ReturnType<typeof toldTo> = [];
    for (const entry of live.received.slice(0, until)) {
      const { message } = entry;
      if (at(message, 'params', 'sessionId') !== sessionId) continue;
      if (message.method === '_sidecar/turn' && at(message, 'params', 'state') === 'running') {
        told.push(...promptChunks([{ type: 'text', text: '§ prompt' }], textAt(message, 'params', 'turnId')));
      } else if (updateOf(message)) told.push(...toldTo([entry], sessionId));
    }
    return told;
  }

  async function expectResumed(inner: Scope, sessionId: string, cut: number, whole: Transcript): Promise<void> {
    const mine = live.received.flatMap(({ message }, i) => {
      const here = at(message, 'params', 'sessionId') === sessionId;
      const eventId = at(message, 'params', '_meta', 'eventId') ?? at(message, 'params', 'eventId');
      return here && typeof eventId === 'string' ? [{ eventId, until: i + 1 }] : [];
    });
    const point = mine[Math.floor(cut * mine.length)];
    if (!point) return;
    const again = await connect(inner, true);
    const meta = at(await again.resume(sessionId, point.eventId), '_meta', 'sidecar');
    expect(meta).toMatchObject({ mode: 'tail' });
    const told = [...liveTold(sessionId, point.until), ...toldTo(again.received, sessionId)];
    expect(transcriptOf(told), `cut after ${point.eventId}`).toEqual(whole);
  }

  it(`[OR1] [CU5] [RP11] [RP12] ${RUNS} of them: live, late, joined and cut clients fold to what the agent said`, {
    timeout: 120_000,
  }, async () => {
    const property = fc.asyncProperty(script, async ({ turns, cuts }) => {
      const inner = new Scope();
      try {
        const { sessionId, expected, joined } = await play(inner, turns);
        const whole = transcriptOf(expected);
        expect(transcriptOf(liveTold(sessionId)), 'live').toEqual(whole);
        expectForward(live, sessionId);
        const late = await connect(inner, false);
        await late.load(sessionId);
        expect(transcriptOf(toldTo(late.received, sessionId)), 'late').toEqual(whole);
        expectForward(late, sessionId);
        for (const cut of cuts) await expectResumed(inner, sessionId, cut, whole);
        for (const client of joined) {
          const view = (): Transcript => {
            const params = client.updates(sessionId).map(({ message }) => message.params ?? {});
            return params.reduce(foldMessage, emptyView(sessionId)).transcript;
          };
          await client
            .until('the rest', () => JSON.stringify(view()) === JSON.stringify(whole), { timeoutMs: 1500 })
            .catch(() => undefined);
          expect(view(), 'joined in a turn').toEqual(whole);
          expectForward(client, sessionId);
        }
      } finally {
        await inner.end();
      }
    });
    await fc.assert(property, { numRuns: RUNS, seed: SEED, endOnFailure: !process.env['FUZZ_SHRINK'] });
  });

  it('[RN3] [TR2] [TR3] the log holds what the rules of coalescing say, no more and no less', async () => {
    const log = await openLmdbEventLogReadOnly(sidecar.store);
    let compared = 0;
    for (const row of log.rows()) {
      const model = models.get(row.sessionId);
      if (!model) continue;
      const updates: unknown[] = [];
      log.scan(row.num, 1, log.lastSeq(row.num), (seq, record, length) => {
        const event = decodeRecord(record, length, seq, false);
        if (!('unreadable' in event) && event.type === 'update') updates.push(parseWire(event.payload));
        return true;
      });
      expect(updates).toEqual(model.events);
      compared++;
    }
    await log.close();
    expect(compared).toBe(models.size);
    expect(compared).toBeGreaterThan(0);
  });
});
