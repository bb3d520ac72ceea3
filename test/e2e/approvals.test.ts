/** Approvals, live: who is asked, whose answer counts, and what everybody else sees of it. */
import { beforeAll, describe, expect, it } from 'vitest';
import { at, textAt } from '../support/json.ts';
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

const scope = new Scope();
let room: Room;
beforeAll(async () => {
  room = await openRoom(scope);
  return () => scope.end();
});

interface Session {
  readonly sessionId: string;
  readonly clients: readonly RawClient[];
}

/** A session with clients that opted in: the first one made it, the others loaded it. */
async function sessionWith(count: number): Promise<Session> {
  const inner = testScope();
  const clients: RawClient[] = [];
  for (let i = 0; i < count; i++) clients.push(await room.enter({ sidecar: { name: `client ${i}` } }, inner));
  const [first, ...others] = clients;
  const sessionId = await (first as RawClient).newSession();
  for (const client of others) await client.load(sessionId);
  return { sessionId, clients };
}

async function two(): Promise<{ sessionId: string; first: RawClient; second: RawClient }> {
  const { sessionId, clients } = await sessionWith(2);
  return { sessionId, first: clients[0] as RawClient, second: clients[1] as RawClient };
}

describe('asking and answering', () => {
  it('[AP1] [AP2] all controllers are asked under one approvalId, the first answer wins, the rest are withdrawn', async () => {
    const { sessionId, first, second } = await two();
    const onlooker = await room.enter({ sidecar: { role: 'observer' } }, testScope());
    await onlooker.load(sessionId);
    const id = askPermission(room.life(), sessionId);
    const a = await card(first, sessionId);
    const b = await card(second, sessionId);
    const approvalId = approvalIdOf(a);
    expect(approvalIdOf(b)).toBe(approvalId);
    answerCard(second, b, choose('yes'));
    expect((await answerAt(room.life(), id)).result).toEqual(choose('yes'));
    await withdrawn(first, a);
    const told = await toldOf(onlooker, approvalId, 'resolved');
    expect(told.message.params).toMatchObject({
      outcome: { optionId: 'yes' },
      by: { name: 'client 1' },
    });
    await settled(onlooker);
    expect(cardsOf(onlooker, sessionId)).toEqual([]);
    // A late answer changes nothing.
    answerCard(first, a, choose('no'));
    await settled(first);
    expect(room.life().received.filter(({ message }) => message.id === id)).toHaveLength(1);
    // The withdrawal goes to those who had not answered.
    await settled(second);
    expect(second.received.some(({ message }) => message.method === '$/cancel_request')).toBe(false);
  });

  it('[AP1] the question is in the log before anybody sees it, with its options', async () => {
    const { sessionId, clients } = await sessionWith(1);
    const client = clients[0] as RawClient;
    askPermission(room.life(), sessionId);
    const asked = await card(client, sessionId);
    const { stdout } = await runCommand(['approvals', sessionId, '--store', room.sidecar.store, '--json']);
    const [listed] = JSON.parse(stdout) as [Record<string, unknown>];
    expect(listed).toMatchObject({ approvalId: approvalIdOf(asked), sessionId, state: 'pending' });
    expect(at(listed, 'params', 'options')).toEqual(asked.message.params?.['options']);
    const answer = await client.request('_sidecar/approvals', { sessionId });
    expect(at(answer, 'approvals', 0)).toMatchObject({
      approvalId: approvalIdOf(asked),
      method: 'session/request_permission',
    });
    expect(at(await client.request('_sidecar/approvals'), 'approvals')).toContainEqual(at(answer, 'approvals', 0));
    answerCard(client, asked, choose('no'));
    await toldOf(client, approvalIdOf(asked), 'resolved');
    expect(at(await client.request('_sidecar/approvals', { sessionId }), 'approvals')).toEqual([]);
  });

  it('[RP1] who attaches later is asked behind the response, before anything live', async () => {
    const { sessionId, clients } = await sessionWith(1);
    room.life().say(sessionId, 'before');
    askPermission(room.life(), sessionId);
    await card(clients[0] as RawClient, sessionId);
    room.life().say(sessionId, 'behind');
    await (clients[0] as RawClient).until('the text', () => clients[0]?.agentText(sessionId) === 'beforebehind');
    for (const how of ['session/load', 'session/resume']) {
      const late = await room.enter({ sidecar: true }, testScope());
      const { message } = await late.ask(how, { sessionId, cwd: '/tmp', mcpServers: [] });
      expect(at(message, 'result', '_meta', 'sidecar', 'approvals')).toBe(1);
      const asked = await card(late, sessionId);
      const response = late.received.findIndex((entry) => entry.message === message);
      expect(late.received.indexOf(asked)).toBeGreaterThan(response);
    }
  });

  it('[EV12] a tool call that is none introduces nothing, and the question is asked', async () => {
    const inner = testScope();
    const client = await room.enter({ sidecar: true }, inner);
    const sessionId = await client.newSession();
    for (const [n, toolCall] of [7, 'x{', ['{', 1], null, {}].entries()) {
      const id = `odd-${n}`;
      const params = { sessionId, toolCallId: `odd-call-${n}`, toolCall, options: [YES, NO] };
      room.life().send({ id, method: 'session/request_permission', params });
      answerCard(client, await card(client, sessionId, n), choose('yes'));
      expect((await answerAt(room.life(), id)).result).toEqual(choose('yes'));
    }
    expect(client.updates(sessionId)).toEqual([]);
  });

  it('[AP4] a wrong option, a wrong shape: nothing is consumed, the card comes again and says why', async () => {
    const { sessionId, clients } = await sessionWith(1);
    const client = clients[0] as RawClient;
    const id = askPermission(room.life(), sessionId);
    const wrong = [choose('maybe'), { outcome: 'yes' }, {}, choose('')];
    const approvalId = approvalIdOf(await card(client, sessionId));
    for (const [n, answer] of wrong.entries()) answerCard(client, await card(client, sessionId, n), answer);
    await settled(client);
    expect(cardsOf(client, sessionId).map(approvalIdOf)).toEqual([approvalId, approvalId, approvalId, approvalId]);
    const again = at((await card(client, sessionId, 1)).message, 'params', '_meta', 'sidecar');
    expect(again).toMatchObject({ refused: 'the option was not offered' });
    expect(isAnswered(room.life(), id)).toBe(false);
    // It has had its chances on this attachment; the next one is asked anew.
    await client.load(sessionId);
    answerCard(client, await card(client, sessionId, 4), choose('no'));
    expect((await answerAt(room.life(), id)).result).toEqual(choose('no'));
  });

  it('[AP8] an error means "this client cannot": the other one decides; when all cannot, the last error is the answer', async () => {
    const { sessionId, first, second } = await two();
    const one = askPermission(room.life(), sessionId);
    first.sendMessage({ id: (await card(first, sessionId)).message.id, error: { code: -32601, message: 'what?' } });
    answerCard(second, await card(second, sessionId), choose('yes'));
    expect((await answerAt(room.life(), one)).result).toEqual(choose('yes'));
    const both = askPermission(room.life(), sessionId);
    first.sendMessage({ id: (await card(first, sessionId, 1)).message.id, error: { code: -32601, message: 'what?' } });
    await settled(first);
    expect(isAnswered(room.life(), both)).toBe(false);
    second.sendMessage({ id: (await card(second, sessionId, 1)).message.id, error: { code: -1, message: 'neither' } });
    expect((await answerAt(room.life(), both)).error).toEqual({ code: -1, message: 'neither' });
  });

  it('[AP9] cancelled by one of several takes only its own card away; by the last one it is the answer', async () => {
    const { sessionId, first, second } = await two();
    const id = askPermission(room.life(), sessionId);
    answerCard(first, await card(first, sessionId), { outcome: { outcome: 'cancelled' } });
    await settled(first);
    expect(isAnswered(room.life(), id)).toBe(false);
    const b = await card(second, sessionId);
    expect(second.received.some(({ message }) => message.method === '$/cancel_request')).toBe(false);
    answerCard(second, b, { outcome: { outcome: 'cancelled' } });
    expect((await answerAt(room.life(), id)).result).toEqual({ outcome: { outcome: 'cancelled' } });
    await toldOf(first, approvalIdOf(b), 'cancelled');
  });

  it('[AP6] a client that leaves answers nothing; with nobody there it waits for the next one', async () => {
    const { sessionId, first, second } = await two();
    const id = askPermission(room.life(), sessionId);
    const approvalId = approvalIdOf(await card(first, sessionId));
    await card(second, sessionId);
    first.cut();
    second.cut();
    const later = await room.enter({ sidecar: true }, testScope());
    await later.load(sessionId);
    const asked = await card(later, sessionId);
    expect(approvalIdOf(asked)).toBe(approvalId);
    expect(isAnswered(room.life(), id)).toBe(false);
    answerCard(later, asked, choose('yes'));
    expect((await answerAt(room.life(), id)).result).toEqual(choose('yes'));
  });

  it('[AP12] several at once are independent, and one call has one card on one screen', async () => {
    const { sessionId, clients } = await sessionWith(1);
    const client = clients[0] as RawClient;
    const ids = ['a', 'b', 'c'].map((toolCallId) => askPermission(room.life(), sessionId, { toolCallId }));
    const cards = [
      await card(client, sessionId, 0),
      await card(client, sessionId, 1),
      await card(client, sessionId, 2),
    ];
    expect(new Set(cards.map(approvalIdOf)).size).toBe(3);
    const [a, b, c] = cards as [(typeof cards)[0], (typeof cards)[0], (typeof cards)[0]];
    answerCard(client, b, choose('no'));
    expect((await answerAt(room.life(), ids[1] as string)).result).toEqual(choose('no'));
    expect(isAnswered(room.life(), ids[0] as string)).toBe(false);
    answerCard(client, a, choose('yes'));
    answerCard(client, c, choose('yes'));
    expect((await answerAt(room.life(), ids[2] as string)).result).toEqual(choose('yes'));
  });
});

describe('cancelling', () => {
  it('[AP10] [TU5] session/cancel resolves everything that is pending as cancelled, also without a turn', async () => {
    const { sessionId, first, second } = await two();
    const ids = [askPermission(room.life(), sessionId), askPermission(room.life(), sessionId)];
    const cards = [await card(first, sessionId, 0), await card(first, sessionId, 1)];
    await card(second, sessionId, 1);
    second.notify('session/cancel', { sessionId });
    for (const id of ids) {
      expect((await answerAt(room.life(), id)).result).toEqual({ outcome: { outcome: 'cancelled' } });
    }
    for (const asked of cards) {
      await withdrawn(first, asked);
      await toldOf(first, approvalIdOf(asked), 'cancelled');
    }
  });

  it('[AP10] a question that crosses the cancel on its way is cancelled too', async () => {
    const { sessionId, clients } = await sessionWith(1);
    const client = clients[0] as RawClient;
    void client.prompt(sessionId, 'go').catch(() => undefined);
    await room
      .life()
      .until('the prompt', ({ received }) =>
        received.find(
          ({ message }) => message.method === 'session/prompt' && at(message, 'params', 'sessionId') === sessionId,
        ),
      );
    client.notify('session/cancel', { sessionId });
    await room
      .life()
      .until('the cancel', ({ received }) =>
        received.find(
          ({ message }) => message.method === 'session/cancel' && at(message, 'params', 'sessionId') === sessionId,
        ),
      );
    const id = askPermission(room.life(), sessionId);
    expect((await answerAt(room.life(), id)).result).toEqual({ outcome: { outcome: 'cancelled' } });
  });

  it("[AP10] [ID2] the agent's own $/cancel_request resolves it as cancelled and takes the cards away", async () => {
    const { sessionId, first, second } = await two();
    const id = askPermission(room.life(), sessionId);
    const a = await card(first, sessionId);
    const b = await card(second, sessionId);
    room.life().send({ method: '$/cancel_request', params: { requestId: id } });
    await withdrawn(first, a);
    await withdrawn(second, b);
    expect((await answerAt(room.life(), id)).result).toEqual({ outcome: { outcome: 'cancelled' } });
    // A late answer changes nothing.
    answerCard(first, a, choose('yes'));
    await settled(first);
    expect(room.life().received.filter(({ message }) => message.id === id)).toHaveLength(1);
  });
});

describe('elicitation', () => {
  let asked = 0;
  const elicit = (sessionId: string | undefined, params: object): string => {
    const id = `elicit-${++asked}`;
    room.life().send({
      id,
      method: 'elicitation/create',
      params: { ...(sessionId && { sessionId }), message: 'Who?', ...params },
    });
    return id;
  };
  const form = { mode: 'form', requestedSchema: { type: 'object', properties: { name: { type: 'string' } } } };
  const url = (elicitationId: string): object => ({ mode: 'url', elicitationId, url: 'https://example.com/' });

  it('[AP11] a form goes to those that can show one, and the first answer wins', async () => {
    const { sessionId, first, second } = await two();
    const without = await room.enter({ capabilities: { elicitation: { url: {} } } }, testScope());
    await without.load(sessionId);
    const id = elicit(sessionId, form);
    const a = await card(first, sessionId);
    const b = await card(second, sessionId);
    answerCard(first, a, { action: 'accept', content: { name: 'x' } });
    expect((await answerAt(room.life(), id)).result).toEqual({ action: 'accept', content: { name: 'x' } });
    await withdrawn(second, b);
    await settled(without);
    expect(cardsOf(without, sessionId)).toEqual([]);
  });

  it('[AP11] [MT3] nobody who is there has the mode: -32602 at once', async () => {
    const inner = testScope();
    const client = await room.enter({ capabilities: { elicitation: { form: {} } } }, inner);
    const sessionId = await client.newSession();
    const id = elicit(sessionId, url('nobody'));
    expect((await answerAt(room.life(), id)).error?.code).toBe(-32602);
  });

  it('[AP11] a url goes to one client, the driver first, and its completion too, kept until that client is back', async () => {
    const inner = testScope();
    const driver = await room.enter({ sidecar: { clientId: 'url-driver' } }, inner);
    const sessionId = await driver.newSession();
    const other = await room.enter({ sidecar: true }, inner);
    await other.load(sessionId);
    void driver.prompt(sessionId, 'go').catch(() => undefined);
    await room
      .life()
      .until('the prompt', ({ received }) =>
        received.find(
          ({ message }) => message.method === 'session/prompt' && at(message, 'params', 'sessionId') === sessionId,
        ),
      );
    // More active than the driver, and still not asked.
    await settled(other);
    const id = elicit(sessionId, url('page-1'));
    answerCard(driver, await card(driver, sessionId), { action: 'accept' });
    expect((await answerAt(room.life(), id)).result).toEqual({ action: 'accept' });
    driver.cut();
    await other.until('the driver to be gone', ({ message }) => {
      const clients = message.method === '_sidecar/clients' ? at(message, 'params', 'clients') : undefined;
      return Array.isArray(clients) && clients.length === 1;
    });
    // A session that it names must be the page's.
    for (const wrong of [{ sessionId: 'another' }, {}])
      room.life().send({ method: 'elicitation/complete', params: { elicitationId: 'page-1', ...wrong } });
    await settled(other);
    const back = await room.enter({ sidecar: { clientId: 'url-driver' } }, inner);
    await back.resume(sessionId);
    const { message } = await back.saw('elicitation/complete');
    expect(message.params).toEqual({ elicitationId: 'page-1' });
    await settled(other);
    expect(cardsOf(other, sessionId)).toEqual([]);
    expect(other.received.some(({ message }) => message.method === 'elicitation/complete')).toBe(false);
  });

  it('[AP11] [ID3] one that belongs to a request goes to its requester, with the id that it knows', async () => {
    const inner = testScope();
    const client = await room.enter({ sidecar: true }, inner);
    const other = await room.enter({ sidecar: true }, inner);
    const answer = client.ask('authenticate', { methodId: 'x' }, 'my-request');
    const request = await room
      .life()
      .until('authenticate', ({ received }) => received.findLast(({ message }) => message.method === 'authenticate'));
    await settled(other);
    const id = elicit(undefined, { ...form, requestId: request.message.id });
    const asks = await client.saw('elicitation/create');
    expect(at(asks.message, 'params', 'requestId')).toBe('my-request');
    expect(at(asks.message, 'params', '_meta')).toBeUndefined();
    answerCard(client, asks, { action: 'decline' });
    expect((await answerAt(room.life(), id)).result).toEqual({ action: 'decline' });
    room.life().reply(request.message, {});
    await answer;
    expect(other.received.some(({ message }) => message.method === 'elicitation/create')).toBe(false);
  });
});

describe('an approval that waits', () => {
  it('[AP14] blocks neither list, load, other sessions, nor new', async () => {
    const { sessionId, clients } = await sessionWith(1);
    const client = clients[0] as RawClient;
    askPermission(room.life(), sessionId);
    await card(client, sessionId);
    await client.request('session/list');
    await client.load(sessionId);
    const other = await client.newSession();
    const answer = client.ask('session/prompt', { sessionId: other, prompt: [{ type: 'text', text: 'go' }] });
    const prompt = await room
      .life()
      .until('the prompt', ({ received }) =>
        received.find(
          ({ message }) => message.method === 'session/prompt' && at(message, 'params', 'sessionId') === other,
        ),
      );
    room.life().say(other, 'hello');
    room.life().reply(prompt.message, { stopReason: 'end_turn' });
    expect(textAt((await answer).message, 'result', 'stopReason')).toBe('end_turn');
    expect(client.agentText(other)).toBe('hello');
  });

  it('[AP14] and a slow answer to a file request hold up nothing that streams', async () => {
    const { sessionId, first, second } = await two();
    askPermission(room.life(), sessionId);
    await card(first, sessionId);
    room.life().send({ id: 'slow-file', method: 'fs/read_text_file', params: { sessionId, path: '/x' } });
    for (let n = 0; n < 20; n++) room.life().say(sessionId, `${n} `);
    const whole = Array.from({ length: 20 }, (_, n) => `${n} `).join('');
    for (const client of [first, second]) {
      await client.until('all of the text', () => client.agentText(sessionId) === whole);
    }
    const file = await Promise.any([first.saw('fs/read_text_file'), second.saw('fs/read_text_file')]);
    const holder = first.received.includes(file) ? first : second;
    holder.sendMessage({ id: file.message.id, result: { content: 'text' } });
    expect((await answerAt(room.life(), 'slow-file')).result).toEqual({ content: 'text' });
  });
});
