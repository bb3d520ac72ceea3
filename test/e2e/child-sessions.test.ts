/** Child sessions, loaded by their own ids: their updates are in the log of the session that announced them. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { at, eventIdOf, type Received, textAt, updateOf } from '../support/json.ts';
import { NetworkProxy } from '../support/network-proxy.ts';
import { RawClient } from '../support/raw-client.ts';
import { askPermission, card, cardsOf, settled, withdrawn } from '../support/room.ts';
import { testScope } from '../support/scope.ts';
import { runCommand, SIDECAR_PROGRAM } from '../support/sidecar.ts';
import { kindsOf, setStage, type Stage, type StageOptions } from '../support/stage.ts';
import { tempDir } from '../support/temp-dir.ts';

const CHILD = 'child-1';
const OTHER = 'child-2';
const MODES = { currentModeId: 'a', availableModes: [{ id: 'a', name: 'A' }] };

const announce = (sessionId: string): object => ({
  sessionUpdate: 'subagent_update',
  sessionId,
  state: { state: 'running' },
});

/** A session whose turn runs, with two children that speak in between. */
async function family(options: StageOptions = {}): Promise<Stage & { readonly end: () => Promise<unknown> }> {
  const stage = await setStage(testScope(), {
    ...options,
    // Most turns are left open.
    args: ['--drain', '50ms', ...(options.args ?? [])],
    handlers: { 'session/new': () => ({ sessionId: 'agent-session-1', modes: MODES }), ...options.handlers },
  });
  const { life, client, agentSessionId } = stage;
  const turn = await stage.turn();
  life.update(agentSessionId, announce(CHILD));
  life.update(agentSessionId, announce(OTHER));
  life.say(CHILD, 'one ');
  life.say(CHILD, 'and a half ');
  life.say(agentSessionId, 'from the parent ');
  life.say(OTHER, 'from the other');
  life.update(CHILD, { sessionUpdate: 'tool_call', toolCallId: 'c1', title: 'Look', status: 'in_progress' });
  life.say(agentSessionId, 'and again ');
  life.say(CHILD, 'two');
  life.update(agentSessionId, { sessionUpdate: 'tool_call', toolCallId: 'p1', title: 'Ask', status: 'in_progress' });
  await client.until('all of it', ({ message }) => updateOf(message)?.['toolCallId'] === 'p1');
  return { ...stage, end: () => turn.end() };
}

const WHOLE = ['agent_message_chunk:one and a half ', 'tool_call:c1', 'agent_message_chunk:two'];

const isReplay = ({ message }: Received): unknown => at(message, 'params', '_meta', 'isReplay');
const metaOf = (result: unknown): unknown => at(result, '_meta', 'sidecar');
const texts = (updates: readonly Received[]): string[] => updates.map(({ text }) => text);

/** What came with an attach: everything up to its response. */
async function during(client: RawClient, attach: () => Promise<unknown>): Promise<Received[]> {
  const from = client.received.length;
  await attach();
  const got = client.received.slice(from);
  const answer = got.findIndex(({ message }) => message.method === undefined && 'result' in message);
  return got.slice(0, answer).filter(({ message }) => updateOf(message));
}

it('[EV11] an empty id is an id, too: what is said under it is not taken for what the parent says', async () => {
  const stage = await setStage(testScope());
  const turn = await stage.turn();
  for (const [id, text] of [
    ['', 'nobody '],
    [stage.agentSessionId, 'one '],
    ['', 'nobody '],
    [stage.agentSessionId, 'two'],
  ] as const)
    stage.life.say(id, text);
  await turn.end();
  expect(stage.client.agentText(stage.sessionId)).toBe('one two');
});

describe('a child that is loaded', () => {
  it('[RP13] is replayed alone, as it lies in the log of its parent; then the connection is on the parent', async () => {
    const stage = await family();
    const { life, sessionId, agentSessionId } = stage;
    const whole = await stage.join();
    await whole.load(sessionId);
    const second = await stage.join();
    let result: unknown;
    const replay = await during(second, async () => (result = await second.load(CHILD)));
    expect(kindsOf(replay)).toEqual(WHOLE);
    expect(replay.map(isReplay)).toEqual([true, true, true]);
    expect(texts(replay)).toEqual(texts(whole.updates(CHILD)));
    const { _meta, ...rest } = result as Record<string, unknown>;
    expect(rest).toEqual({});
    expect(at(_meta, 'sidecar')).toMatchObject({ mode: 'full', reason: 'no_cursor', parent: sessionId, approvals: 0 });
    expect(at(_meta, 'sidecar', 'eventId')).toBe(whole.cursors.get(sessionId));
    expect(at(_meta, 'sidecar', 'turn', 'state')).toBe('running');
    const from = second.received.length;
    life.say(CHILD, ' three');
    life.say(agentSessionId, 'to everybody');
    await stage.end();
    await second.until('the parent', () => second.agentText(sessionId) === 'to everybody');
    expect(kindsOf(second.updates(CHILD, from))).toEqual(['agent_message_chunk: three']);
    expect(second.updates(CHILD, from).map(isReplay)).toEqual([undefined]);
    // It is a client like others there.
    const turn = await stage.turn('more', second);
    await turn.end();
  });

  it.each(['load', 'resume'] as const)('[RP13] session/%s goes on after a cursor, as for the parent', async (how) => {
    const stage = await family({ optIn: true });
    const { life, client, sessionId } = stage;
    const call = client.updates(CHILD).find(({ message }) => updateOf(message)?.['toolCallId'] === 'c1');
    const cursor = eventIdOf((call as Received).message);
    const second = await stage.join(true);
    let result: unknown;
    const replay = await during(second, async () => (result = await second[how](CHILD, cursor)));
    expect(kindsOf(replay)).toEqual(['agent_message_chunk:two']);
    expect(replay.map(isReplay)).toEqual([undefined]);
    expect(metaOf(result)).toMatchObject({ mode: 'tail', parent: sessionId });
    const told = second.received.filter(({ message }) => message.method === '_sidecar/replay');
    expect(told.map(({ message }) => message.params)).toMatchObject([
      { sessionId: CHILD, parent: sessionId, phase: 'begin', mode: 'tail', fromEventId: cursor },
      { sessionId: CHILD, parent: sessionId, phase: 'end', mode: 'tail' },
    ]);
    // In the middle of a text: the rest of it.
    const inside = eventIdOf(client.updates(CHILD)[0]?.message ?? {});
    const third = await stage.join();
    await third[how](CHILD, inside);
    expect(kindsOf(third.updates(CHILD)).at(-1)).toBe('agent_message_chunk:two');
    expect(`one ${third.agentText(CHILD)}`.endsWith('two')).toBe(true);
    const fourth = await stage.join();
    const foreign = await fourth[how](CHILD, 'elsewhere-3');
    expect(metaOf(foreign)).toMatchObject({ mode: 'full', reason: 'foreign' });
    expect(kindsOf(fourth.updates(CHILD))).toEqual(WHOLE);
    life.say(CHILD, '.');
    await third.until('what comes then', () => third.agentText(CHILD).endsWith('two.'));
  });

  it('[RP13] session/resume without a cursor replays nothing and shows what comes', async () => {
    const stage = await family();
    const second = await stage.join();
    const result = await second.resume(CHILD);
    expect(second.updates()).toEqual([]);
    expect(metaOf(result)).toMatchObject({ mode: 'none', reason: 'no_cursor', parent: stage.sessionId });
    stage.life.say(CHILD, ' three');
    await second.until('it', () => second.agentText(CHILD).endsWith(' three'));
  });

  it('[RP13] [RP1] text that is streaming is in the replay, and goes on behind the response', async () => {
    const stage = await family();
    const { life, client } = stage;
    life.say(CHILD, 'abc');
    await client.until('abc', () => client.agentText(CHILD).endsWith('abc'));
    const second = await stage.join();
    const replay = await during(second, () => second.load(CHILD));
    expect(replay.map(({ message }) => at(updateOf(message), 'content', 'text')).join('')).toMatch(/twoabc|abc$/);
    expect(replay.every((entry) => isReplay(entry) === true)).toBe(true);
    const before = second.agentText(CHILD);
    life.say(CHILD, 'def');
    await second.until('def', () => second.agentText(CHILD) === `${before}def`);
  });

  it('[AP2] is asked what the parent waits for', async () => {
    const stage = await family();
    const id = askPermission(stage.life, stage.agentSessionId, { toolCallId: 'p1' });
    await card(stage.client, stage.sessionId);
    const second = await stage.join();
    const result = await second.load(CHILD);
    expect(at(metaOf(result), 'approvals')).toBe(1);
    const asked = await card(second, stage.sessionId);
    second.sendMessage({ id: asked.message.id, result: { outcome: { outcome: 'selected', optionId: 'yes' } } });
    await stage.life.answerTo(id);
  });
});

describe('on a connection that is on the parent', () => {
  it('[RP14] nothing of the parent comes again, and nothing of it is missed', async () => {
    const stage = await family();
    const { life, client, sessionId, agentSessionId } = stage;
    // An open text, and progress that no event holds yet.
    const progress = { sessionUpdate: 'tool_call_update', toolCallId: 'p1', title: 'Ask more' };
    life.update(agentSessionId, progress);
    life.say(agentSessionId, 'abc');
    await client.until('abc', () => client.agentText(sessionId).endsWith('abc'));
    const id = askPermission(life, CHILD, { toolCallId: 'c1' });
    const first = await card(client, CHILD);
    const parentText = client.agentText(sessionId);
    const from = client.received.length;
    const replay = await during(client, () => client.load(CHILD));
    expect(kindsOf(replay)).toEqual(WHOLE);
    await withdrawn(client, first);
    await client.until('the card again', () => cardsOf(client, CHILD).length === 2);
    life.say(agentSessionId, 'def');
    life.update(agentSessionId, { sessionUpdate: 'tool_call_update', toolCallId: 'p1', status: 'completed' });
    await client.until('def', () => client.agentText(sessionId).endsWith('def'));
    await client.until('the end of the call', ({ message }) => updateOf(message)?.['status'] === 'completed');
    expect(client.agentText(sessionId)).toBe(`${parentText}def`);
    const own = client.updates(sessionId, from);
    expect(kindsOf(own)).toEqual(['agent_message_chunk:def', 'tool_call_update:p1']);
    expect(own.map(isReplay)).toEqual([undefined, undefined]);
    client.sendMessage({
      id: cardsOf(client, CHILD)[1]?.message.id,
      result: { outcome: { outcome: 'selected', optionId: 'no' } },
    });
    await life.answerTo(id);
    await stage.end();
  });

  it('[RP14] loads of the parent and of both children that are sent at once are all served in full', async () => {
    const stage = await family();
    const whole = await stage.join();
    await whole.load(stage.sessionId);
    const own = (client: RawClient, id: string): string[] => kindsOf(client.updates(id));
    for (const ids of [
      [stage.sessionId, CHILD, OTHER],
      [CHILD, OTHER],
      [CHILD, CHILD],
      [OTHER, CHILD, stage.sessionId],
    ]) {
      const second = await stage.join();
      await Promise.all(ids.map((id) => second.load(id)));
      await settled(second);
      const name = ids.join(' ');
      for (const id of new Set([stage.sessionId, ...ids])) {
        const got = own(second, id);
        const expected = ids.includes(id) ? own(whole, id) : [];
        if (id === stage.sessionId) expect(got, `${name}: ${id}`).toEqual(expected);
        // Its own replay is the last; before it the parent's or one that was begun before may have shown it.
        else expect(got.slice(-expected.length), `${name}: ${id}`).toEqual(expected);
      }
    }
  });

  it('[GA4] who did not advertise subagents is shown the child that it loaded, and no other', async () => {
    const stage = await family({ clientCapabilities: { plan: {} } });
    const { life, client, sessionId, agentSessionId } = stage;
    expect(client.updates(CHILD)).toEqual([]);
    const parent = client.updates(sessionId).length;
    expect(kindsOf(await during(client, () => client.load(CHILD)))).toEqual(WHOLE);
    life.say(CHILD, ' three');
    life.say(OTHER, ' more');
    life.say(agentSessionId, 'the end');
    await client.until('the end', () => client.agentText(sessionId).endsWith('the end'));
    expect(client.agentText(CHILD)).toBe('one and a half two three');
    expect(client.updates(OTHER)).toEqual([]);
    expect(client.updates(sessionId)).toHaveLength(parent + 1);
  });
});

describe('through connect', () => {
  it('[RC11] a child that was loaded goes on after the connection was cut, and so does its parent', async () => {
    const stage = await family();
    const { life, scope, sidecar, sessionId, agentSessionId } = stage;
    const network = await NetworkProxy.listen(scope, Number(new URL(sidecar.wsUrl).port));
    const url = `ws://127.0.0.1:${network.port}/acp`;
    const editor = RawClient.direct(scope, [process.execPath, SIDECAR_PROGRAM, 'connect', url, '--heartbeat', '200ms']);
    // It does not know of subagents.
    await editor.initialize({ capabilities: {} });
    await editor.load(sessionId);
    expect(kindsOf(await during(editor, () => editor.load(CHILD)))).toEqual(WHOLE);
    let child = 'one and a half two';
    let parent = editor.agentText(sessionId);
    for (const word of [' three', ' four']) {
      network.refusing = true;
      network.cut();
      life.say(CHILD, word);
      life.say(agentSessionId, word);
      child += word;
      parent += word;
      await stage.client.until('it', () => stage.client.agentText(sessionId).endsWith(word));
      network.refusing = false;
      await editor.until('the rest', () => editor.agentText(sessionId).length >= parent.length);
      expect([editor.agentText(CHILD), editor.agentText(sessionId)]).toEqual([child, parent]);
    }
    life.say(CHILD, '!');
    await editor.until('live text', () => editor.agentText(CHILD) === `${child}!`);
    expect(editor.updates(OTHER)).toEqual([]);
  });
});

describe('where a child is found', () => {
  it('[RP15] after kill -9, in a cold log, and the agent is not asked for it', async () => {
    const stage = await family({
      capabilities: { loadSession: true },
      handlers: { 'session/load': (request, life) => life.fail(request, -32603, 'not any more') },
    });
    const { sidecar, sessionId, agent } = stage;
    const cursor = eventIdOf(
      stage.client.updates(CHILD).find(({ message }) => updateOf(message)?.['toolCallId'] === 'c1')?.message ?? {},
    );
    await sidecar.restart();
    const client = await stage.join();
    const result = await client.load(CHILD);
    expect(metaOf(result)).toMatchObject({ mode: 'full', parent: sessionId });
    expect(kindsOf(client.updates(CHILD)).slice(0, 2)).toEqual(WHOLE.slice(0, 2));
    expect(client.updates(sessionId)).toEqual([]);
    const second = await stage.join();
    await second.resume(CHILD, cursor);
    expect(kindsOf(second.updates(CHILD))).toEqual(kindsOf(client.updates(CHILD)).slice(2));
    // The log goes on, and both see it.
    const turn = client.prompt(sessionId, 'go on');
    await second.until('the prompt', ({ message }) => updateOf(message)?.['sessionUpdate'] === 'user_message_chunk');
    (await agent.life(1)).reply((await (await agent.life(1)).saw('session/prompt')).message, {
      stopReason: 'end_turn',
    });
    await turn;
    const unknown = await client.ask('session/load', { sessionId: 'child-3', cwd: '/tmp', mcpServers: [] });
    expect(unknown.message.error).toMatchObject({ code: -32002, data: { sessionId: 'child-3' } });
    const asked = agent.lives.flatMap(({ received }) => received).map(({ message }) => message);
    expect(asked.filter((message) => at(message, 'params', 'sessionId') === CHILD)).toEqual([]);
  });

  it("[RP15] every other request says what to do, and changes nothing; a cancel is the agent's to understand", async () => {
    const stage = await family();
    const { client, life, sessionId } = stage;
    const seen = life.received.length;
    for (const [method, params] of [
      ['session/prompt', { prompt: [{ type: 'text', text: 'x' }] }],
      ['session/set_mode', { modeId: 'a' }],
      ['session/set_title', { title: 'a' }],
      ['session/archive', {}],
      ['session/close', {}],
      ['session/delete', {}],
      ['session/fork', { cwd: '/tmp', mcpServers: [] }],
      ['session/attach', {}],
    ] as const) {
      const { message } = await client.ask(method, { sessionId: CHILD, ...params });
      expect(message.error, method).toMatchObject({
        code: -32602,
        data: { kind: 'invalid_params', sessionId: CHILD, parent: sessionId },
      });
      expect(textAt(message.error, 'message')).toContain(`${method} goes there`);
    }
    expect(life.received).toHaveLength(seen);
    client.notify('session/cancel', { sessionId: CHILD, _meta: { sidecar: {}, own: 1 } });
    const cancel = await life.saw('session/cancel');
    expect(cancel.message.params).toEqual({ sessionId: CHILD, _meta: { own: 1 } });
    // The parent's turn was not cancelled: it ends as the agent says.
    const end = await stage.end();
    expect(at(end, 'message', 'result', 'stopReason')).toBe('end_turn');
    expect(life.received.filter(({ message }) => message.method === 'session/cancel')).toHaveLength(1);
  });

  it('[RP15] a deleted parent has no children; one that was imported has them once it is open', async () => {
    const stage = await family();
    const { client, sidecar, sessionId } = stage;
    await stage.end();
    const file = join(tempDir(stage.scope), 'session');
    const at = ['--store', sidecar.store];
    expect(await runCommand(['export', sessionId, '--out', file, ...at])).toMatchObject({ code: 0 });
    await client.request('session/delete', { sessionId });
    const gone = await client.ask('session/load', { sessionId: CHILD, cwd: '/tmp', mcpServers: [] });
    expect(gone.message.error).toMatchObject({ code: -32002 });
    expect(await runCommand(['import', file, '--as', 'copy', ...at])).toMatchObject({ code: 0 });
    await client.load('copy');
    const second = await stage.join();
    expect(metaOf(await second.load(CHILD))).toMatchObject({ parent: 'copy' });
    expect(kindsOf(second.updates(CHILD))).toEqual(WHOLE);
  });

  it('[AC8] a token that is limited to the parent opens its children, one for anything else does not', async () => {
    const tokens = join(tempDir(testScope()), 'tokens');
    const lines = [
      'parent-token-0123456789abcdef controller a session=agent-session-1',
      'child-token-0123456789abcdef controller b session=child-1',
      'other-token-0123456789abcdef controller c session=agent-session-2',
    ];
    writeFileSync(tokens, `${lines.join('\n')}\n`, { mode: 0o600 });
    const stage = await family({ args: ['--token-file', tokens] });
    const as = async (name: string): Promise<RawClient> => {
      const headers = { authorization: `Bearer ${name}-token-0123456789abcdef` };
      const client = await stage.sidecar.webSocket(stage.scope, { headers });
      await client.initialize();
      return client;
    };
    const parent = await as('parent');
    await parent.load(CHILD);
    expect(kindsOf(parent.updates(CHILD))).toEqual(WHOLE);
    const prompted = await parent.ask('session/prompt', { sessionId: CHILD, prompt: [] });
    expect(prompted.message.error).toMatchObject({ code: -32602, data: { parent: stage.sessionId } });
    const passed = await parent.ask('_custom/thing', { sessionId: CHILD });
    expect(passed.message.error).toMatchObject({ code: -32602 });
    for (const name of ['child', 'other']) {
      const client = await as(name);
      const { message } = await client.ask('session/load', { sessionId: CHILD, cwd: '/tmp', mcpServers: [] });
      expect(message.error, name).toMatchObject({ code: -32002, data: { kind: 'unknown_session', sessionId: CHILD } });
      await settled(client);
      expect(client.updates(), name).toEqual([]);
    }
  });
});
