/**
 * Three clients on one session that prompt, cancel, answer, drop and come back at random, at random speeds, with an agent
 * that talks, calls tools and asks at random: one order for all, every approval resolved exactly once, nobody waits for
 * ever, and all of them end with the same transcript.
 */
import { afterAll, expect, it } from 'vitest';
import { transcriptOf } from '../../protocol/v1/fold.ts';
import { parseWire } from '../../protocol/wire-text.ts';
import { decodeRecord } from '../../storage/event-codec.ts';
import { openLmdbEventLogReadOnly } from '../../storage/lmdb-event-log.ts';
import { FuzzClient } from '../support/fuzz-client.ts';
import { at, type Message, updateOf } from '../support/json.ts';
import { askPermission, openRoom, type Room } from '../support/room.ts';
import { Scope } from '../support/scope.ts';
import type { AgentLife } from '../support/scripted-agent.ts';
import { seededRandom } from '../support/seeded-random.ts';
import { waitFor } from '../support/wait-for.ts';

const STEPS = Number(process.env['CLIENT_STEPS'] ?? 2000);
const SEED = Number(process.env['FUZZ_SEED'] ?? 20_261_130);

const scope = new Scope();
afterAll(() => scope.end());

type Random = () => number;
const pick = <T>(random: Random, items: readonly T[]): T => items[Math.floor(random() * items.length)] as T;
const breathe = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** An agent that does something in every turn, and stops when it is told to. */
class RandomAgent {
  readonly #life: AgentLife;
  readonly #sessionId: string;
  readonly #random: Random;
  readonly questions: string[] = [];
  #cancelled = false;
  #tools = 0;
  turns = 0;
  calm = false;

  constructor(life: AgentLife, sessionId: string, random: Random) {
    this.#life = life;
    this.#sessionId = sessionId;
    this.#random = random;
  }

  cancel(): void {
    this.#cancelled = true;
  }

  async turn(request: Message): Promise<void> {
    this.#cancelled = false;
    this.turns++;
    const acts = this.calm ? 1 : Math.floor(this.#random() * 8);
    for (let n = 0; n < acts && !this.#cancelled; n++) {
      await this.#act();
      await breathe(this.#random() * 4);
    }
    this.#life.reply(request, { stopReason: this.#cancelled ? 'cancelled' : 'end_turn' });
  }

  async #act(): Promise<void> {
    const { sessionId, life } = { sessionId: this.#sessionId, life: this.#life };
    const kind = this.#random();
    if (kind < 0.4) {
      for (let n = 0; n < 5; n++) life.say(sessionId, `${this.turns}.${n} `, { messageId: `m${this.turns}` });
      return;
    }
    const toolCallId = `tool-${this.#tools++}`;
    if (kind < 0.6) {
      life.update(sessionId, { sessionUpdate: 'tool_call', toolCallId, title: 'T', status: 'in_progress' });
      life.update(sessionId, { sessionUpdate: 'tool_call_update', toolCallId, title: 'T2' });
      life.update(sessionId, { sessionUpdate: 'tool_call_update', toolCallId, status: 'completed' });
      return;
    }
    const ids = [askPermission(life, sessionId, { toolCallId })];
    if (kind > 0.85) ids.push(askPermission(life, sessionId, { toolCallId: `${toolCallId}-b` }));
    this.questions.push(...ids);
    if (kind > 0.95) life.send({ method: '$/cancel_request', params: { requestId: ids[0] } });
    for (const id of ids) await life.answerTo(id);
    life.update(sessionId, { sessionUpdate: 'tool_call_update', toolCallId, status: 'completed' });
  }
}

/** One step of one client. */
async function step(client: FuzzClient, sessionId: string, random: Random, drops: boolean): Promise<void> {
  const { connection } = client;
  if (!connection) {
    await client.connect();
    return;
  }
  const chance = random();
  const open = client.openCards();
  if (chance < 0.13 && client.waiting.size < 3) client.prompt(`${client.clientId} says ${random()}`);
  else if (chance < 0.14) connection.notify('session/cancel', { sessionId });
  else if (chance < 0.18) {
    if (drops) client.drop();
  } else if (chance < 0.25) connection.transport.pause();
  else if (chance < 0.35) connection.transport.resume();
  else if (chance < 0.75 && open.length > 0) client.answer(pick(random, open), pick(random, ANSWERS));
  else await breathe(random() * 3);
}

const chosen = (optionId: string): object => ({ result: { outcome: { outcome: 'selected', optionId } } });
const ANSWERS = [
  chosen('yes'),
  chosen('yes'),
  chosen('no'),
  chosen('no such option'),
  { result: {} },
  { result: { outcome: { outcome: 'cancelled' } } },
  { error: { code: -32601, message: 'cannot' } },
];

it(`[CL6] ${STEPS} steps, seed ${SEED}`, { timeout: 60_000 + STEPS * 40 }, async () => {
  const random = seededRandom(SEED);
  const room = await openRoom(scope, { args: ['--log-level', 'error'] });
  const maker = await room.enter();
  const sessionId = await maker.newSession();
  const cursor = maker.cursors.get(sessionId) as string;
  maker.close();
  const agent = new RandomAgent(room.life(), sessionId, seededRandom(SEED + 1));
  room.agent.handlers.set('session/prompt', (request) => void agent.turn(request));
  room.agent.handlers.set('session/cancel', () => agent.cancel());
  const clients = [0, 1, 2].map((n) => new FuzzClient(room.sidecar, scope, `client-${n}`, sessionId, cursor));
  for (const client of clients) await client.connect();

  for (let n = 0; n < STEPS; n++) {
    // Towards the end nobody drops: what is still on a screen then has no excuse.
    await step(pick(random, clients), sessionId, random, n < STEPS * 0.8);
    if (n % 8 === 0) await breathe(1);
  }

  // Everybody comes back and answers; then nobody may be left waiting.
  agent.calm = true;
  for (const client of clients) {
    client.connection?.transport.resume();
    if (!client.connection) await client.connect();
  }
  const quiet = (): boolean => {
    for (const client of clients) {
      for (const approvalId of client.openCards()) client.answer(approvalId, chosen('yes'));
    }
    return clients.every(({ waiting, cards }) => waiting.size === 0 && cards.size === 0);
  };
  const left = (): string =>
    clients
      .map(({ clientId, waiting, cards }) => `${clientId} ${[...waiting.keys(), ...cards.keys()].join(' ')}`)
      .join('; ');
  await waitFor(() => `every prompt to be answered and every card to go; left: ${left()}`, quiet, {
    timeoutMs: 40_000,
  });
  clients[0]?.prompt('the last word');
  await waitFor(
    'the last turn to be shown to all',
    () =>
      quiet() &&
      clients.every((client) => client.told.some((update) => at(update, 'content', 'text') === 'the last word')),
  );
  const fresh = await room.enter({ sidecar: true }, scope);
  await fresh.load(sessionId);
  const whole = transcriptOf(fresh.updates(sessionId).map(({ message }) => updateOf(message)));
  for (const client of clients) {
    await waitFor('the rest of the stream', () => JSON.stringify(transcriptOf(client.told)) === JSON.stringify(whole), {
      timeoutMs: 3000,
    }).catch(() => undefined);
    expect(client.faults, client.clientId).toEqual([]);
    expect(transcriptOf(client.told), client.clientId).toEqual(whole);
    // A prompt that was sent again got the same answer, with the cursor of now.
    for (const answers of client.answers.values()) {
      const same = answers.map(({ result, error }) => JSON.stringify(result ?? error, withoutEventId));
      expect(new Set(same).size).toBe(1);
    }
  }
  expectOnePromptATurn(room, clients);
  await expectEachResolvedOnce(room, sessionId, agent, clients);
});

function withoutEventId(key: string, value: unknown): unknown {
  return key === 'eventId' ? undefined : value;
}

/** A prompt reaches the agent at most once, however often it was sent. */
function expectOnePromptATurn(room: Room, clients: readonly FuzzClient[]): void {
  const texts = room
    .life()
    .received.flatMap(({ message }) =>
      message.method === 'session/prompt' ? [at(message, 'params', 'prompt', 0, 'text')] : [],
    );
  expect(new Set(texts).size).toBe(texts.length);
  const made = clients.flatMap(({ ownPrompts }) => [...ownPrompts.values()].map((prompt) => at(prompt, 0, 'text')));
  expect(texts.every((text) => made.includes(text))).toBe(true);
  expect(texts.length).toBeGreaterThan(STEPS / 150);
}

async function expectEachResolvedOnce(
  room: Room,
  sessionId: string,
  agent: RandomAgent,
  clients: readonly FuzzClient[],
): Promise<void> {
  const log = await openLmdbEventLogReadOnly(room.sidecar.store);
  const row = log.row(sessionId);
  const ends = new Map<string, unknown[]>();
  const outcomes: string[] = [];
  if (row) {
    log.scan(row.num, row.low, log.lastSeq(row.num), (seq, record, length) => {
      const event = decodeRecord(record, length, seq);
      if ('unreadable' in event || !event.type.startsWith('approval_')) return true;
      const payload = parseWire(event.payload);
      const approvalId = String(at(payload, 'approvalId'));
      if (event.type === 'approval_requested') ends.set(approvalId, []);
      else ends.get(approvalId)?.push(at(payload, 'answer') ?? at(payload, 'error'));
      if (event.type === 'approval_resolved')
        outcomes.push(JSON.stringify(at(payload, 'answer') ?? at(payload, 'error')));
      return true;
    });
  }
  await log.close();
  expect(ends.size).toBe(agent.questions.length);
  expect([...ends.values()].filter((list) => list.length !== 1)).toEqual([]);
  // The agent got each answer once, and nothing that is not in the log.
  const got = agent.questions.map((id) =>
    room.life().received.filter(({ message }) => message.method === undefined && message.id === id),
  );
  expect(got.filter((list) => list.length !== 1)).toEqual([]);
  const heard = got.map(([first]) => JSON.stringify(first?.message.result ?? first?.message.error));
  expect(heard.toSorted()).toEqual(outcomes.toSorted());
  for (const { resolved, clientId } of clients) {
    expect(
      [...resolved.values()].filter((times) => times !== 1),
      clientId,
    ).toEqual([]);
  }
  expect(agent.questions.length).toBeGreaterThan(STEPS / 200);
}
