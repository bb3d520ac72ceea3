/** Several clients on one session: roles, presence, turns, who gets which request, and what each one is shown. */
import { beforeAll, describe, expect, it } from 'vitest';
import { at, type Message, type Received, textAt, updateOf } from '../support/json.ts';
import type { RawClient } from '../support/raw-client.ts';
import {
  answerAt,
  answerCard,
  askPermission,
  card,
  cardsOf,
  choose,
  openRoom,
  type Room,
  settled,
  textsOf,
  toldOf,
  approvalIdOf,
} from '../support/room.ts';
import { Scope, testScope } from '../support/scope.ts';
import { waitFor } from '../support/wait-for.ts';

const scope = new Scope();
let room: Room;
beforeAll(async () => {
  room = await openRoom(scope);
  room.agent.handlers.set('initialize', () => ({ protocolVersion: 1, agentCapabilities: {} }));
  return () => scope.end();
});

const inSession =
  (sessionId: string, method: string) =>
  ({ message }: Received): boolean =>
    message.method === method && at(message, 'params', 'sessionId') === sessionId;

/** The n-th request of a method for a session that the agent got. */
async function agentSaw(sessionId: string, method: string, n = 0): Promise<Message> {
  const found = await room.life().until(method, ({ received }) => received.filter(inSession(sessionId, method))[n]);
  return found.message;
}

async function ended(client: RawClient, sessionId: string, n = 0): Promise<void> {
  let seen = 0;
  await client.until(
    'the end of the turn',
    (entry) =>
      inSession(sessionId, '_sidecar/turn')(entry) && at(entry.message, 'params', 'state') === 'ended' && seen++ === n,
  );
}

describe('roles', () => {
  it('[MT4] what an observer may not do is refused with a clear error, by token, wish or attachment', async () => {
    const inner = testScope();
    const first = await room.enter({ sidecar: true }, inner);
    const sessionId = await first.newSession();
    const observer = await room.enter({ sidecar: { role: 'observer' } }, inner);
    await observer.load(sessionId);
    const guest = await room.enter({ sidecar: true }, inner);
    await guest.request('session/attach', { sessionId, role: 'observer' });
    for (const client of [observer, guest]) {
      for (const [method, params] of [
        ['session/prompt', { prompt: [{ type: 'text', text: 'x' }] }],
        ['session/set_mode', { modeId: 'm' }],
        ['session/close', {}],
      ] as const) {
        const { message } = await client.ask(method, { sessionId, ...params });
        expect(at(message, 'error', 'data', 'kind'), method).toBe('observer');
      }
      client.notify('session/cancel', { sessionId });
    }
    const id = askPermission(room.life(), sessionId);
    const asked = await card(first, sessionId);
    await settled(observer);
    await settled(guest);
    expect([...cardsOf(observer, sessionId), ...cardsOf(guest, sessionId)]).toEqual([]);
    observer.sendMessage({ id: asked.message.id, result: choose('yes') });
    await settled(observer);
    answerCard(first, asked, choose('no'));
    expect((await answerAt(room.life(), id)).result).toEqual(choose('no'));
    expect(room.life().received.some(inSession(sessionId, 'session/cancel'))).toBe(false);
    // Elsewhere the guest is what it was.
    expect(await guest.newSession()).not.toBe(sessionId);
  });

  it('[CL2] presence is told to those that opted in: who is there, and whose turn it is', async () => {
    const inner = testScope();
    const first = await room.enter({ sidecar: { clientId: 'a', name: 'Ann' } }, inner);
    const sessionId = await first.newSession();
    const stock = await room.enter({}, inner);
    await stock.load(sessionId);
    const second = await room.enter({ sidecar: { clientId: 'b', name: 'Bob', role: 'observer' } }, inner);
    await second.load(sessionId);
    const present = (client: RawClient): unknown =>
      client.received.findLast(inSession(sessionId, '_sidecar/clients'))?.message.params?.['clients'];
    const ann = { clientId: 'a', name: 'Ann', role: 'controller', driver: false };
    const anonymous = { role: 'controller', driver: false };
    const bob = { clientId: 'b', name: 'Bob', role: 'observer', driver: false };
    const shows = async (client: RawClient, clients: readonly object[]): Promise<void> => {
      await waitFor(
        () => `${JSON.stringify(clients)}; told ${JSON.stringify(present(client))}`,
        () => JSON.stringify(present(client)) === JSON.stringify(clients),
      );
    };
    await shows(first, [ann, anonymous, bob]);
    await shows(second, [ann, anonymous, bob]);
    void first.prompt(sessionId, 'go').catch(() => undefined);
    await shows(second, [{ ...ann, driver: true }, anonymous, bob]);
    room.life().reply(await agentSaw(sessionId, 'session/prompt'), { stopReason: 'end_turn' });
    await shows(second, [ann, anonymous, bob]);
    stock.cut();
    await shows(first, [ann, bob]);
    expect(stock.received.some(({ message }) => message.method?.startsWith('_sidecar/'))).toBe(false);
  });
});

describe('turns', () => {
  it('[TU1] [TU4] two prompts queue; both are told to everybody, the senders get no echo of their own', async () => {
    const inner = testScope();
    const first = await room.enter({ sidecar: { clientId: 'q1' } }, inner);
    const sessionId = await first.newSession();
    const second = await room.enter({ sidecar: { clientId: 'q2' } }, inner);
    await second.load(sessionId);
    const one = first.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'one' }] });
    const request = await agentSaw(sessionId, 'session/prompt');
    const two = second.ask('session/prompt', {
      sessionId,
      prompt: [{ type: 'text', text: 'two' }],
      _meta: { sidecar: { promptId: 'p2' } },
    });
    const queued = await first.until(
      'the queued turn',
      (entry) => inSession(sessionId, '_sidecar/turn')(entry) && at(entry.message, 'params', 'promptId') === 'p2',
    );
    expect(queued.message.params).toMatchObject({ state: 'queued', clientId: 'q2' });
    expect(queued.message.params).not.toHaveProperty('digest');
    expect(room.life().received.filter(inSession(sessionId, 'session/prompt'))).toHaveLength(1);
    room.life().reply(request, { stopReason: 'end_turn' });
    await one;
    room.life().reply(await agentSaw(sessionId, 'session/prompt', 1), { stopReason: 'end_turn' });
    await two;
    await ended(first, sessionId, 1);
    await ended(second, sessionId, 1);
    expect(textsOf(first, sessionId, 'user_message_chunk')).toEqual(['two']);
    expect(textsOf(second, sessionId, 'user_message_chunk')).toEqual(['one']);
  });

  it('[TU4] under --on-busy reject a prompt for a busy session is refused, and may be sent later', async () => {
    const inner = testScope();
    const own = await openRoom(inner, { args: ['--on-busy', 'reject'] });
    const client = await own.enter({ sidecar: true }, inner);
    const sessionId = await client.newSession();
    const first = client.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'one' }] });
    const life = await own.agent.life(0);
    const request = await life.saw('session/prompt');
    const refused = await client.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'two' }] });
    expect(at(refused.message, 'error', 'data', 'kind')).toBe('session_busy');
    life.reply(request.message, { stopReason: 'end_turn' });
    await first;
    const again = client.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'two' }] });
    life.reply((await life.saw('session/prompt', 1)).message, { stopReason: 'end_turn' });
    expect(at((await again).message, 'result', 'stopReason')).toBe('end_turn');
  });

  it('[TU7] [TU8] a prompt sent again after a cut joins its turn; the answer goes to whoever asked last, once', async () => {
    const inner = testScope();
    const first = await room.enter({ sidecar: { clientId: 'again' } }, inner);
    const sessionId = await first.newSession();
    const prompt = { sessionId, prompt: [{ type: 'text', text: 'once' }], _meta: { sidecar: { promptId: 'p1' } } };
    void first.ask('session/prompt', prompt).catch(() => undefined);
    const request = await agentSaw(sessionId, 'session/prompt');
    first.cut();
    const back = await room.enter({ sidecar: { clientId: 'again' } }, inner);
    await back.resume(sessionId);
    const joined = back.ask('session/prompt', prompt);
    await settled(back);
    room.life().reply(request, { stopReason: 'end_turn' });
    const { message } = await joined;
    expect(at(message, 'result', 'stopReason')).toBe('end_turn');
    // Asked once more: from the log, the same.
    expect((await back.ask('session/prompt', prompt)).message.result).toEqual(message.result);
    expect(room.life().received.filter(inSession(sessionId, 'session/prompt'))).toHaveLength(1);
    const other = { ...prompt, prompt: [{ type: 'text', text: 'something else' }] };
    expect((await back.ask('session/prompt', other)).message.error?.code).toBe(-32602);
  });

  it('[TU7] whoever asked before with that promptId, on another connection that is open, is answered too', async () => {
    const inner = testScope();
    const first = await room.enter({ sidecar: true }, inner);
    const sessionId = await first.newSession();
    const prompt = { sessionId, prompt: [{ type: 'text', text: 'twice' }], _meta: { sidecar: { promptId: 'p2' } } };
    const asked = first.ask('session/prompt', prompt);
    const request = await agentSaw(sessionId, 'session/prompt');
    const second = await room.enter({ sidecar: true }, inner);
    const joined = second.ask('session/prompt', prompt);
    await settled(second);
    room.life().reply(request, { stopReason: 'end_turn' });
    const { message } = await joined;
    expect(at(message, 'result', 'stopReason')).toBe('end_turn');
    expect((await asked).message.result).toEqual(message.result);
  });

  it('[TU6] a prompt that was sent again, running or queued, is cancelled by its new request id, alone', async () => {
    const inner = testScope();
    const first = await room.enter({ sidecar: { clientId: 'cancels' } }, inner);
    const sessionId = await first.newSession();
    const prompt = (promptId: string): object => {
      return { sessionId, prompt: [{ type: 'text', text: promptId }], _meta: { sidecar: { promptId } } };
    };
    for (const name of ['a', 'b', 'c']) void first.ask('session/prompt', prompt(name)).catch(() => undefined);
    const running = await agentSaw(sessionId, 'session/prompt');
    await settled(first);
    first.cut();
    const back = await room.enter({ sidecar: { clientId: 'cancels' } }, inner);
    await back.resume(sessionId);
    const [a, b, c] = ['a', 'b', 'c'].map((name) => back.ask('session/prompt', prompt(name), `again-${name}`));
    back.notify('$/cancel_request', { requestId: 'again-b' });
    expect(at((await b)?.message, 'result', 'stopReason')).toBe('cancelled');
    back.notify('$/cancel_request', { requestId: 'again-a' });
    // Every agent knows session/cancel, and it has one prompt of a session at a time.
    await agentSaw(sessionId, 'session/cancel');
    room.life().reply(running, { stopReason: 'cancelled' });
    expect(at((await a)?.message, 'result', 'stopReason')).toBe('cancelled');
    room.life().reply(await agentSaw(sessionId, 'session/prompt', 1), { stopReason: 'end_turn' });
    expect(at((await c)?.message, 'result', 'stopReason')).toBe('end_turn');
  });
});

describe('requests to one client', () => {
  const readFile = (id: string, sessionId: string): void => {
    room.life().send({ id, method: 'fs/read_text_file', params: { sessionId, path: '/x' } });
  };

  it('[RQ2] a client without clientId that is cut: the agent gets an error at once', async () => {
    const inner = testScope();
    const client = await room.enter({ sidecar: true }, inner);
    const sessionId = await client.newSession();
    readFile('cut-1', sessionId);
    await client.saw('fs/read_text_file');
    client.cut();
    expect((await answerAt(room.life(), 'cut-1')).error?.code).toBe(-32603);
    readFile('cut-2', sessionId);
    expect((await answerAt(room.life(), 'cut-2')).error?.code).toBe(-32601);
  });

  it('[CL1] [RQ5] a new connection with the same clientId takes the place of the old one and its requests, with their keys', async () => {
    const inner = testScope();
    const old = await room.sidecar.webSocket(inner);
    await old.initialize({ sidecar: { clientId: 'editor' } });
    const sessionId = await old.newSession();
    const other = await room.enter({ sidecar: true }, inner);
    await other.load(sessionId);
    void old.prompt(sessionId, 'go').catch(() => undefined);
    await agentSaw(sessionId, 'session/prompt');
    readFile('kept', sessionId);
    const asked = await old.saw('fs/read_text_file');
    const fresh = await room.sidecar.webSocket(inner);
    await fresh.initialize({ sidecar: { clientId: 'editor' } });
    expect((await old.untilClosed()).code).toBe(4409);
    // The driver is away for a moment: what is meant for it waits for it, although another one could answer.
    readFile('meanwhile', sessionId);
    await fresh.resume(sessionId);
    const again = await fresh.saw('fs/read_text_file');
    const key = (entry: Received): unknown => at(entry.message, 'params', '_meta', 'sidecar', 'requestKey');
    expect(key(again)).toBe(key(asked));
    expect(typeof key(again)).toBe('string');
    fresh.sendMessage({ id: again.message.id, result: { content: 'kept' } });
    expect((await answerAt(room.life(), 'kept')).result).toEqual({ content: 'kept' });
    const second = await fresh.saw('fs/read_text_file', 1);
    expect(key(second)).not.toBe(key(asked));
    fresh.sendMessage({ id: second.message.id, result: { content: 'meanwhile' } });
    expect((await answerAt(room.life(), 'meanwhile')).result).toEqual({ content: 'meanwhile' });
    await settled(other);
    expect(other.received.some(({ message }) => message.method === 'fs/read_text_file')).toBe(false);
  });

  it('[CL3] a request repeated with its requestKey runs once, and whoever asks gets the answer', async () => {
    const inner = testScope();
    const first = await room.enter({ sidecar: { clientId: 'repeats' } }, inner);
    const made = room.life().received.filter(({ message }) => message.method === 'session/new').length;
    const params = { cwd: '/tmp', mcpServers: [], _meta: { sidecar: { requestKey: 'new-1' } } };
    const sessionId = textAt(await first.request('session/new', params), 'sessionId');
    first.cut();
    const back = await room.enter({ sidecar: { clientId: 'repeats' } }, inner);
    expect(await back.request('session/new', params)).toMatchObject({ sessionId });
    expect(room.life().received.filter(({ message }) => message.method === 'session/new')).toHaveLength(made + 1);
    // It is on its session, and another client's key is its own.
    room.life().say(sessionId, 'hello');
    await back.until('the text', () => back.agentText(sessionId) === 'hello');
    const other = await room.enter({ sidecar: { clientId: 'someone' } }, inner);
    expect(await other.request('session/new', params)).not.toMatchObject({ sessionId });
    // While it runs, the second one joins.
    const custom = { sessionId, _meta: { sidecar: { requestKey: 'custom-1' } } };
    void back.ask('_x/slow', custom).catch(() => undefined);
    const slow = await agentSaw(sessionId, '_x/slow');
    back.cut();
    const third = await room.enter({ sidecar: { clientId: 'repeats' } }, inner);
    const joined = third.request('_x/slow', custom);
    await settled(third);
    room.life().reply(slow, { done: true });
    expect(await joined).toEqual({ done: true });
    expect(room.life().received.filter(inSession(sessionId, '_x/slow'))).toHaveLength(1);
  });
});

describe('terminals', () => {
  async function terminalAt(owner: RawClient, sessionId: string, terminalId: string): Promise<void> {
    const id = `create-${terminalId}`;
    room.life().send({ id, method: 'terminal/create', params: { sessionId, command: 'ls' } });
    const asked = await owner.until('terminal/create', inSession(sessionId, 'terminal/create'));
    owner.sendMessage({ id: asked.message.id, result: { terminalId } });
    await answerAt(room.life(), id);
  }
  const shows = (terminalId: string): object => ({
    sessionUpdate: 'tool_call',
    toolCallId: `call-${terminalId}`,
    title: 'ls',
    status: 'in_progress',
    content: [{ type: 'terminal', terminalId }],
  });
  const contents = (client: RawClient, sessionId: string): string[] =>
    client.updates(sessionId).map(({ message }) => JSON.stringify(updateOf(message)?.['content']));

  it('[RQ4] [RQ6] stay with their owner; on release the output is fetched once, for everybody else it is text', async () => {
    const inner = testScope();
    const owner = await room.enter({ sidecar: true }, inner);
    const sessionId = await owner.newSession();
    const other = await room.enter({}, inner);
    await terminalAt(owner, sessionId, 't1');
    await other.load(sessionId);
    await settled(other);
    room.life().update(sessionId, shows('t1'));
    await other.until('the call', () => contents(other, sessionId).length === 1);
    await owner.until('the call', () => contents(owner, sessionId).length === 1);
    expect(contents(owner, sessionId)[0]).toContain('"terminal"');
    expect(contents(other, sessionId)[0]).toContain('[A terminal that runs at another client.');
    // The other one is more active now; the terminal's requests still go to its owner.
    room.life().send({ id: 'wait-t1', method: 'terminal/wait_for_exit', params: { sessionId, terminalId: 't1' } });
    const wait = await owner.saw('terminal/wait_for_exit');
    owner.sendMessage({ id: wait.message.id, result: { exitCode: 2 } });
    await answerAt(room.life(), 'wait-t1');
    room.life().send({ id: 'release-t1', method: 'terminal/release', params: { sessionId, terminalId: 't1' } });
    const fetched = await owner.saw('terminal/output');
    expect(owner.received.some(({ message }) => message.method === 'terminal/release')).toBe(false);
    owner.sendMessage({
      id: fetched.message.id,
      result: { output: 'a\nb', truncated: false, exitStatus: { exitCode: 2 } },
    });
    const release = await owner.saw('terminal/release');
    owner.sendMessage({ id: release.message.id, result: {} });
    await answerAt(room.life(), 'release-t1');
    await other.until('the output', () => contents(other, sessionId).length === 2);
    expect(contents(other, sessionId)[1]).toContain('a\\nb\\n[exit code 2]');
    await settled(owner);
    expect(contents(owner, sessionId)).toHaveLength(1);
    const late = await room.enter({}, inner);
    await late.load(sessionId);
    expect(contents(late, sessionId)).toEqual(contents(other, sessionId));
    expect(owner.received.filter(({ message }) => message.method === 'terminal/output')).toHaveLength(1);
  });

  it('[RQ6] released before the call that shows it was sent: still on its owner’s screen, text in every later view', async () => {
    const inner = testScope();
    const owner = await room.enter({}, inner);
    owner.handlers.set('terminal/output', () => ({ output: 'printed', truncated: false }));
    owner.handlers.set('terminal/release', () => ({}));
    const sessionId = await owner.newSession();
    const other = await room.enter({}, inner);
    await terminalAt(owner, sessionId, 't4');
    await other.load(sessionId);
    room.life().send({ id: 'release-t4', method: 'terminal/release', params: { sessionId, terminalId: 't4' } });
    await answerAt(room.life(), 'release-t4');
    room.life().update(sessionId, shows('t4'));
    await other.until('the output', () => contents(other, sessionId).length === 2);
    expect(contents(other, sessionId)[1]).toContain('printed');
    await settled(owner);
    expect(contents(owner, sessionId)).toEqual(['[{"type":"terminal","terminalId":"t4"}]']);
    await owner.load(sessionId);
    expect(contents(owner, sessionId).slice(1)).toEqual(contents(other, sessionId));
  });

  it('[RQ6] of an owner that leaves the session: it can still be asked what they printed', async () => {
    const inner = testScope();
    const owner = await room.enter({}, inner);
    const sessionId = await owner.newSession();
    await terminalAt(owner, sessionId, 't3');
    const other = await room.enter({}, inner);
    await other.load(sessionId);
    room.life().update(sessionId, shows('t3'));
    await other.until('the call', () => contents(other, sessionId).length === 1);
    await owner.request('session/detach', { sessionId });
    const asked = await owner.saw('terminal/output');
    owner.sendMessage({ id: asked.message.id, result: { output: 'left behind', truncated: false } });
    await other.until('the output', () => contents(other, sessionId).length === 2);
    expect(contents(other, sessionId)[1]).toContain('left behind');
  });

  it('[RQ6] are gone with an owner that does not come back: what was seen last is kept, later requests are refused', async () => {
    const inner = testScope();
    const owner = await room.enter({}, inner);
    const sessionId = await owner.newSession();
    await terminalAt(owner, sessionId, 't2');
    const other = await room.enter({}, inner);
    await other.load(sessionId);
    room.life().update(sessionId, shows('t2'));
    room.life().send({ id: 'output-t2', method: 'terminal/output', params: { sessionId, terminalId: 't2' } });
    const output = await owner.saw('terminal/output');
    owner.sendMessage({ id: output.message.id, result: { output: 'half', truncated: false } });
    await answerAt(room.life(), 'output-t2');
    owner.cut();
    await other.until('the output', () => contents(other, sessionId).length === 2);
    expect(contents(other, sessionId)[1]).toContain('half');
    room.life().send({ id: 'kill-t2', method: 'terminal/kill', params: { sessionId, terminalId: 't2' } });
    expect((await answerAt(room.life(), 'kill-t2')).error?.code).toBe(-32602);
  });
});

describe('what each client is shown', () => {
  it('[GA1] [GA3] [MT3] only what it advertised: boolean options, children, notices', async () => {
    const inner = testScope();
    const options = [
      { id: 'flag', name: 'F', type: 'boolean', currentValue: true },
      { id: 'pick', name: 'P', type: 'select', currentValue: 'a', options: [] },
    ];
    room.agent.handlers.set('session/new', () => ({ sessionId: 'with-options', configOptions: options }));
    const full = await room.enter({ sidecar: true }, inner);
    const bare = await room.enter({ capabilities: {} }, inner);
    await full.newSession();
    room.agent.handlers.set('session/new', (_request, life) => ({
      sessionId: `more-${life.received.length}`,
      configOptions: options,
    }));
    const sessionId = 'with-options';
    const mine = await bare.request('session/new', { cwd: '/tmp', mcpServers: [] });
    expect(at(mine, 'configOptions')).toEqual([options[1]]);
    expect(at(await bare.load(sessionId), 'configOptions')).toEqual([options[1]]);
    expect(at(await full.load(sessionId), 'configOptions')).toEqual(options);
    const life = room.life();
    life.update(sessionId, { sessionUpdate: 'config_option_update', configOptions: options });
    life.update(sessionId, { sessionUpdate: 'subagent_update', sessionId: 'child-of-options', status: 'running' });
    life.update('child-of-options', { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: 'child' } });
    life.update(sessionId, { sessionUpdate: 'notice', level: 'info', message: 'n' });
    life.say(sessionId, 'end');
    for (const client of [full, bare]) await client.until('the end', () => client.agentText(sessionId).endsWith('end'));
    const seen = (client: RawClient): unknown[] =>
      client.updates().flatMap(({ message }) => {
        const update = updateOf(message);
        return update?.['configOptions'] ?? update?.['sessionUpdate'] ?? [];
      });
    expect(seen(full)).toEqual([...options, 'subagent_update', 'agent_message_chunk', 'notice', 'agent_message_chunk']);
    expect(seen(bare)).toEqual([options[1], 'agent_message_chunk']);
    const late = await room.enter({ capabilities: {} }, inner);
    await late.load(sessionId);
    expect(seen(late)).toEqual([options[1], 'agent_message_chunk']);
  });

  it('[CL7] ways to authenticate in a terminal are offered to clients that can', async () => {
    const inner = testScope();
    const own = await openRoom(inner);
    const methods = [
      { id: 'tty', name: 'T', type: 'terminal' },
      { id: 'key', name: 'K' },
    ];
    own.agent.handlers.set('initialize', () => ({ protocolVersion: 1, agentCapabilities: {}, authMethods: methods }));
    const capable = await own.sidecar.unix(inner);
    expect(at(await capable.initialize({ capabilities: { auth: { terminal: true } } }), 'authMethods')).toEqual(
      methods,
    );
    const other = await own.sidecar.unix(inner);
    expect(at(await other.initialize({ capabilities: {} }), 'authMethods')).toEqual([methods[1]]);
  });
});

describe('session/attach', () => {
  it('[CL4] [CL5] gives the history in its response, asks what is pending, and tells what others do in the words of the RFD', async () => {
    const inner = testScope();
    room.agent.handlers.delete('session/new');
    room.agent.handlers.set('session/new', (_request, life) => ({ sessionId: `attach-${life.received.length}` }));
    const first = await room.enter({ sidecar: { clientId: 'rfd-1', name: 'One' } }, inner);
    const sessionId = await first.newSession();
    const done = first.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'hi' }] });
    const request = await agentSaw(sessionId, 'session/prompt');
    room.life().say(sessionId, 'hello', { messageId: 'm1' });
    room.life().reply(request, { stopReason: 'end_turn' });
    const cursor = textAt((await done).message, 'result', '_meta', 'sidecar', 'eventId');
    askPermission(room.life(), sessionId);
    const asked = await card(first, sessionId);

    const attach = async (params: object): Promise<{ client: RawClient; result: unknown }> => {
      const client = await room.enter({}, inner);
      return { client, result: await client.request('session/attach', { sessionId, ...params }) };
    };
    const kinds = (result: unknown): unknown[] =>
      (at(result, 'history') as Message[]).map((entry) => at(entry, 'update', 'sessionUpdate'));
    const full = await attach({});
    expect(full.result).toMatchObject({ sessionId, historyPolicy: 'full', clientId: expect.any(String) as string });
    expect(at(full.result, 'connectedClients')).toContainEqual({ clientId: 'rfd-1', name: 'One', role: 'controller' });
    expect(kinds(full.result)).toEqual([
      'user_message_chunk',
      'prompt_received',
      'agent_message_chunk',
      'turn_complete',
      'tool_call',
    ]);
    expect(typeof at(full.result, 'history', 0, '_meta', 'eventId')).toBe('string');
    await card(full.client, sessionId);

    const pending = await attach({ historyPolicy: 'pending_only' });
    expect(kinds(pending.result)).toEqual([]);
    await card(pending.client, sessionId);
    const none = await attach({ historyPolicy: 'none' });
    expect(none.result).toMatchObject({ historyPolicy: 'none', history: [] });
    const event = await attach({ historyPolicy: 'after_event', afterEventId: cursor });
    expect(event.result).toMatchObject({ historyPolicy: 'after_event' });
    expect(kinds(event.result)).toEqual(['tool_call']);
    const message = await attach({ historyPolicy: 'after_message', afterMessageId: 'm1' });
    expect(kinds(message.result)).toEqual(['turn_complete', 'tool_call']);
    const unknown = await attach({ historyPolicy: 'after_message', afterMessageId: 'never' });
    expect(unknown.result).toMatchObject({ historyPolicy: 'full' });
    expect((await full.client.ask('session/attach', { sessionId, historyPolicy: 'some' })).message.error?.code).toBe(
      -32602,
    );

    answerCard(first, asked, choose('yes'));
    const resolved = await full.client.until('the resolution', ({ text }) => text.includes('permission_resolved'));
    expect(updateOf(resolved.message)).toMatchObject({
      chosenOptionId: 'yes',
      outcome: { outcome: 'selected', optionId: 'yes' },
      resolvedBy: { clientId: 'rfd-1' },
    });
    await settled(none.client);
    expect(cardsOf(none.client, sessionId)).toEqual([]);
    // What is asked from now on reaches it, too.
    askPermission(room.life(), sessionId);
    const later = await card(none.client, sessionId);
    await none.client.request('session/detach', { sessionId });
    await full.client.until('who left', ({ text }) => text.includes('client_disconnected'));
    none.client.sendMessage({ id: later.message.id, result: choose('yes') });
    await settled(none.client);
    answerCard(full.client, await card(full.client, sessionId, 1), choose('no'));
    await toldOf(first, approvalIdOf(later), 'resolved');
    // Stock clients are told nothing of the kind.
    expect(first.received.some(({ text }) => text.includes('permission_resolved'))).toBe(false);
  });

  it('[CL4] a history of more than 1 MiB comes as notifications before the response', async () => {
    const inner = testScope();
    const first = await room.enter({ sidecar: true }, inner);
    const sessionId = await first.newSession();
    for (let n = 0; n < 20; n++) room.life().say(sessionId, `${n % 10}`.repeat(60_000), { messageId: `long-${n}` });
    room.life().say(sessionId, 'END', { messageId: 'last' });
    await first.until('the end', () => first.agentText(sessionId).endsWith('END'));
    const client = await room.enter({}, inner);
    const result = await client.request('session/attach', { sessionId });
    expect(at(result, 'historyPolicy')).toBe('full');
    expect(at(result, 'history', 'length')).toBe(0);
    expect(client.agentText(sessionId) === first.agentText(sessionId)).toBe(true);
  });
});
