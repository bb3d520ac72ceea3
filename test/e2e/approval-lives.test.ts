/** Approvals across the lives of the agent and of the sidecar: what is shown, what is asked again, what is never assumed. */
import { describe, expect, it } from 'vitest';
import { decodeRecord } from '../../storage/event-codec.ts';
import { openLmdbEventLogReadOnly } from '../../storage/lmdb-event-log.ts';
import { parseWire } from '../../protocol/wire-text.ts';
import { at, type Received } from '../support/json.ts';
import type { RawClient } from '../support/raw-client.ts';
import {
  answerAt,
  answerCard,
  approvalIdOf,
  askPermission,
  card,
  cardsOf,
  choose,
  isAnswered,
  NO,
  openRoom,
  type Room,
  settled,
  toldOf,
  withdrawn,
  YES,
} from '../support/room.ts';
import { runCommand } from '../support/sidecar.ts';
import { Scope, testScope } from '../support/scope.ts';
import { setStage } from '../support/stage.ts';
import type { AgentLife } from '../support/scripted-agent.ts';
import { seededRandom } from '../support/seeded-random.ts';

const KILLS = Number(process.env['APPROVAL_KILLS'] ?? 12);
const CALL = { toolCallId: 'the-call', title: 'rm -rf build', kind: 'execute', rawInput: { command: 'rm -rf build' } };

/** Sends a prompt and waits until the agent's newest process has it. */
async function promptReaches(room: Room, client: RawClient, sessionId: string, text: string): Promise<AgentLife> {
  void client.prompt(sessionId, text).catch(() => undefined);
  for (let n = room.agent.lives.length - 1; ; n++) {
    const life = await room.agent.life(Math.max(0, n));
    const seen = life.until(
      'the prompt',
      () => life.closed || life.received.some((entry) => entry.text.includes(text)),
    );
    await seen;
    if (!life.closed) return life;
  }
}

/** Ends the agent's process and waits until the client was told. */
async function exitOf(life: AgentLife, client: RawClient): Promise<void> {
  const from = client.received.length;
  life.exit(1);
  const exited = ({ message }: Received): boolean =>
    message.method === '_sidecar/agent' && at(message, 'params', 'state') === 'exited';
  await client.until('the exit', exited, { from });
}

interface Recorded {
  readonly type: string;
  readonly approvalId: unknown;
  readonly outcome: unknown;
}

/** The approval events of a session, from the store. */
async function approvalEvents(store: string, sessionId: string): Promise<Recorded[]> {
  const log = await openLmdbEventLogReadOnly(store);
  const row = log.row(sessionId);
  const found: Recorded[] = [];
  if (row) {
    log.scan(row.num, row.low, log.lastSeq(row.num), (seq, record, length) => {
      const event = decodeRecord(record, length, seq);
      if ('unreadable' in event || !event.type.startsWith('approval_')) return true;
      const payload = parseWire(event.payload);
      found.push({ type: event.type, approvalId: at(payload, 'approvalId'), outcome: at(payload, 'outcome') });
      return true;
    });
  }
  await log.close();
  return found;
}

describe('the agent exits', () => {
  it('[AP7] [AP12] its approvals are interrupted, the cards go, and the same call opens the same approval again', async () => {
    const scope = testScope();
    const room = await openRoom(scope);
    const client = await room.enter();
    const sessionId = await client.newSession();
    const first = await room.agent.life(0);
    askPermission(first, sessionId, CALL);
    const asked = await card(client, sessionId);
    const approvalId = approvalIdOf(asked);
    first.exit(1);
    await toldOf(client, approvalId, 'interrupted');
    await withdrawn(client, asked);
    answerCard(client, asked, choose('yes'));
    const second = await promptReaches(room, client, sessionId, 'go on');
    const other = askPermission(second, sessionId, { ...CALL, toolCallId: 'else', title: 'ls', rawInput: {} });
    const again = askPermission(second, sessionId, { ...CALL, toolCallId: 'renumbered' });
    const twice = askPermission(second, sessionId, { ...CALL, toolCallId: 'renumbered' });
    const [elseCard, reopened, separate] = [
      await card(client, sessionId, 1),
      await card(client, sessionId, 2),
      await card(client, sessionId, 3),
    ];
    expect(approvalIdOf(reopened)).toBe(approvalId);
    expect(at(reopened.message, 'params', '_meta', 'sidecar')).toMatchObject({ reopened: true });
    expect(at(reopened.message, 'params', '_meta', 'sidecar', 'previousOutcome')).toBeUndefined();
    // Never two live cards for one approval: what is asked besides is an approval of its own.
    expect(new Set([approvalId, approvalIdOf(elseCard), approvalIdOf(separate)]).size).toBe(3);
    expect([other, again, twice].some((id) => isAnswered(second, id))).toBe(false);
    answerCard(client, reopened, choose('no'));
    expect((await answerAt(second, again)).result).toEqual(choose('no'));
  });

  it('[AP13] an answer that the agent never acted on is shown when it asks again, and is not given for the user', async () => {
    const scope = testScope();
    const room = await openRoom(scope);
    const client = await room.enter();
    const sessionId = await client.newSession();
    const first = await room.agent.life(0);
    const id = askPermission(first, sessionId, CALL);
    const asked = await card(client, sessionId);
    answerCard(client, asked, choose('yes'));
    await answerAt(first, id);
    await exitOf(first, client);
    const second = await promptReaches(room, client, sessionId, 'go on');
    const again = askPermission(second, sessionId, CALL);
    const reopened = await card(client, sessionId, 1);
    expect(at(reopened.message, 'params', '_meta', 'sidecar')).toMatchObject({
      approvalId: approvalIdOf(asked),
      reopened: true,
      previousOutcome: { outcome: 'selected', optionId: 'yes' },
    });
    await settled(client);
    expect(isAnswered(second, again)).toBe(false);
    // Once it has acted on an answer, the same id means another call.
    answerCard(client, reopened, choose('yes'));
    await answerAt(second, again);
    second.update(sessionId, { sessionUpdate: 'tool_call_update', toolCallId: CALL.toolCallId, status: 'in_progress' });
    await client.until('the update', ({ text }) => text.includes('in_progress'));
    await exitOf(second, client);
    const third = await promptReaches(room, client, sessionId, 'and on');
    askPermission(third, sessionId, CALL);
    expect(approvalIdOf(await card(client, sessionId, 2))).not.toBe(approvalIdOf(asked));
  });
});

it('[AP1] is stored and listed under the public id of a session that lives in another agent session', async () => {
  const args = ['--drain', '100ms'];
  const { client, life, sessionId, agent } = await setStage(testScope(), { optIn: true, args });
  life.exit(1);
  await client.until('the exit', ({ message }) => at(message, 'params', 'state') === 'exited');
  void client.prompt(sessionId, 'go on').catch(() => undefined);
  const second = await agent.life(1);
  const agentSessionId = at((await second.saw('session/prompt')).message, 'params', 'sessionId');
  expect(agentSessionId).not.toBe(sessionId);
  askPermission(second, String(agentSessionId), CALL);
  await card(client, sessionId);
  for (const method of ['_sidecar/approvals', '_sidecar/events']) {
    const told = JSON.stringify(await client.request(method, { sessionId, types: ['approval_requested'] }));
    expect(told).toContain(`"params":{"sessionId":"${sessionId}"`);
    expect(told).not.toContain(agentSessionId);
  }
});

describe('--approval-timeout', () => {
  it('[AP5] records the first reject_once option, else cancelled or declined, never a yes', async () => {
    const scope = testScope();
    const room = await openRoom(scope, { args: ['--approval-timeout', '200ms'] });
    const client = await room.enter();
    const sessionId = await client.newSession();
    const life = await room.agent.life(0);
    const rejected = askPermission(life, sessionId, {}, [YES, NO]);
    const cancelled = askPermission(life, sessionId, {}, [
      YES,
      { optionId: 'never', name: 'Never', kind: 'reject_always' },
    ]);
    life.send({
      id: 'form',
      method: 'elicitation/create',
      params: { sessionId, mode: 'form', message: 'm', requestedSchema: { type: 'object' } },
    });
    const asked = await card(client, sessionId);
    expect((await answerAt(life, rejected)).result).toEqual(choose('no'));
    expect((await answerAt(life, cancelled)).result).toEqual({ outcome: { outcome: 'cancelled' } });
    expect((await answerAt(life, 'form')).result).toEqual({ action: 'decline' });
    await withdrawn(client, asked);
    const told = await toldOf(client, approvalIdOf(asked), 'resolved');
    expect(told.message.params?.['by']).toBeUndefined();
  });
});

describe('SIGTERM of the sidecar', () => {
  it('[AP7] interrupts what is pending: the agent gets no consent, the turn ends cancelled, and it is asked again later', async () => {
    const scope = testScope();
    const room = await openRoom(scope, { args: ['--drain', '100ms'] });
    const client = await room.enter();
    const sessionId = await client.newSession();
    const prompt = client.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'go' }] });
    const first = await room.agent.life(0);
    const running = await first.saw('session/prompt');
    const request = askPermission(first, sessionId, CALL);
    const asked = await card(client, sessionId);
    const approvalId = approvalIdOf(asked);
    const stopped = room.sidecar.stop();
    await toldOf(client, approvalId, 'interrupted');
    await withdrawn(client, asked);
    expect((await answerAt(first, request)).result).toEqual({ outcome: { outcome: 'cancelled' } });
    await first.saw('session/cancel');
    first.reply(running.message, { stopReason: 'cancelled' });
    expect(at((await prompt).message.result, 'stopReason')).toBe('cancelled');
    await stopped;
    const events = await approvalEvents(room.sidecar.store, sessionId);
    expect(events.map(({ type }) => type)).toEqual(['approval_requested', 'approval_interrupted']);
    await room.sidecar.start();
    const back = await room.enter();
    await back.load(sessionId);
    const second = await promptReaches(room, back, sessionId, 'go on');
    askPermission(second, sessionId, CALL);
    const again = await card(back, sessionId);
    expect(approvalIdOf(again)).toBe(approvalId);
    expect(at(again.message, 'params', '_meta', 'sidecar', 'previousOutcome')).toBeUndefined();
  });
});

describe('kill -9 of the sidecar', () => {
  it('[AP7] before the answer: interrupted, listed as such, opened again when the agent asks again', async () => {
    const scope = testScope();
    const room = await openRoom(scope);
    const client = await room.enter();
    const sessionId = await client.newSession();
    void client.prompt(sessionId, 'go').catch(() => undefined);
    const first = await room.agent.life(0);
    await first.saw('session/prompt');
    askPermission(first, sessionId, CALL);
    const approvalId = approvalIdOf(await card(client, sessionId));
    await room.sidecar.kill();
    const listed = async (): Promise<unknown> =>
      JSON.parse((await runCommand(['approvals', '--store', room.sidecar.store, '--json'])).stdout);
    expect(await listed()).toMatchObject([{ approvalId, state: 'interrupted' }]);
    await room.sidecar.start();
    // Nobody waits for it in the new process either.
    expect(await listed()).toMatchObject([{ approvalId, state: 'interrupted' }]);
    const back = await room.enter();
    await back.load(sessionId);
    await toldOf(back, approvalId, 'interrupted');
    await settled(back);
    // Shown, but not a button.
    expect(cardsOf(back, sessionId)).toEqual([]);
    expect(at(await back.request('_sidecar/approvals'), 'approvals')).toEqual([]);
    const second = await promptReaches(room, back, sessionId, 'again');
    const id = askPermission(second, sessionId, CALL);
    const reopened = await card(back, sessionId);
    expect(approvalIdOf(reopened)).toBe(approvalId);
    await toldOf(back, approvalId, 'reopened');
    expect(isAnswered(second, id)).toBe(false);
    answerCard(back, reopened, choose('yes'));
    expect((await answerAt(second, id)).result).toEqual(choose('yes'));
  });

  it(`[AP3] [AP7] at ${KILLS} moments between asking and forwarding: no decision is lost, doubled or made up`, {
    timeout: 120_000,
  }, async () => {
    const scope = testScope();
    const room = await openRoom(scope);
    const random = seededRandom(20_261_130);
    const ends = { interrupted: 0, resolved: 0, forwarded: 0, unknown: 0 };
    for (let n = 0; n < KILLS; n++) {
      const inner = new Scope();
      const client = await room.enter({ sidecar: true }, inner);
      const sessionId = await client.newSession();
      const life = room.life();
      const call = { ...CALL, toolCallId: `call-of-${n}` };
      const id = askPermission(life, sessionId, call);
      // Half of the kills come while the question is on its way, half while the answer is.
      let answered = false;
      if (n % 2 === 1) {
        const asked = await card(client, sessionId);
        answerCard(client, asked, choose(n % 4 === 1 ? 'yes' : 'no'));
        answered = true;
      }
      await new Promise((resolve) => setTimeout(resolve, random() * 6));
      await room.sidecar.kill();
      await client.untilClosed();
      const seen = cardsOf(client, sessionId).map(approvalIdOf)[0];
      const got = life.received.find(({ message }) => message.id === id && message.method === undefined);
      const events = await approvalEvents(room.sidecar.store, sessionId);
      const resolved = events.find(({ type }) => type === 'approval_resolved');
      // What a client saw and what the agent got is in the log; what nobody answered is not.
      if (seen !== undefined) expect(events[0]).toMatchObject({ type: 'approval_requested', approvalId: seen });
      if (got) expect(resolved?.outcome).toEqual(at(got.message, 'result', 'outcome'));
      if (!answered) expect(resolved).toBeUndefined();
      await inner.end();
      await room.sidecar.start();
      await comeBack(room, sessionId, call, events[0]?.approvalId, resolved?.outcome);
      if (got) ends.forwarded++;
      else if (resolved) ends.resolved++;
      else if (events.length > 0) ends.interrupted++;
      else ends.unknown++;
    }
    expect(ends.interrupted + ends.resolved + ends.forwarded).toBeGreaterThan(KILLS / 3);
  });
});

/** After the restart the agent asks for the same call: nothing is answered for the user. */
async function comeBack(
  room: Room,
  sessionId: string,
  call: object,
  approvalId: unknown,
  before: unknown,
): Promise<void> {
  const inner = new Scope();
  const client = await room.enter({ sidecar: true }, inner);
  await client.load(sessionId);
  expect(cardsOf(client, sessionId)).toEqual([]);
  const life = await promptReaches(room, client, sessionId, `after ${sessionId}`);
  const id = askPermission(life, sessionId, call);
  const reopened = await card(client, sessionId);
  const facts = at(reopened.message, 'params', '_meta', 'sidecar');
  if (approvalId !== undefined) expect(facts).toMatchObject({ approvalId, reopened: true });
  expect(at(facts, 'previousOutcome')).toEqual(before);
  await settled(client);
  expect(isAnswered(life, id)).toBe(false);
  answerCard(client, reopened, choose('no'));
  expect((await answerAt(life, id)).result).toEqual(choose('no'));
  await inner.end();
}
