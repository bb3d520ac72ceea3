/** What `session/load` and `session/resume` give: which part of the log, in which order, and what the response says. */
import { describe, expect, it } from 'vitest';
import { type EventId, comparePositions, parseEventId, positionOf } from '../../protocol/event-id.ts';
import { at, eventIdOf, isResponse, type Received, textAt, updateOf } from '../support/json.ts';
import type { RawClient } from '../support/raw-client.ts';
import { askPermission, card, withdrawn } from '../support/room.ts';
import { testScope } from '../support/scope.ts';
import { kindsOf, type Stage, setStage } from '../support/stage.ts';

const metaOf = (result: unknown): unknown => at(result, '_meta', 'sidecar');
const isReplay = ({ message }: Received): unknown => at(message, 'params', '_meta', 'isReplay');

/** One turn: a text, a tool call, a text. */
async function told(stage: Stage): Promise<void> {
  const turn = await stage.turn('question');
  const { life, agentSessionId } = stage;
  life.say(agentSessionId, 'first');
  life.update(agentSessionId, { sessionUpdate: 'tool_call', toolCallId: 't', title: 'T', status: 'completed' });
  life.say(agentSessionId, 'last');
  await turn.end();
}

const WHOLE = ['user_message_chunk:question', 'agent_message_chunk:first', 'tool_call:t', 'agent_message_chunk:last'];

/** The eventId of the tool call. */
function cursorIn(client: RawClient): string {
  const call = client.updates().find(({ message }) => updateOf(message)?.['toolCallId'] === 't');
  const cursor = eventIdOf(call?.message ?? {});
  if (cursor === undefined) throw new Error('the tool call was not shown');
  return cursor;
}

describe('a cursor', () => {
  it.each([
    ['session/load', 'afterEventId'],
    ['session/load', 'cursor'],
    ['session/resume', 'afterEventId'],
    ['session/resume', 'cursor'],
  ])('[CU7] [RP2] %s with %s gives what follows it, not marked as a replay', async (method, name) => {
    const stage = await setStage(testScope());
    const { client, sessionId } = stage;
    await told(stage);
    const again = await stage.join();
    const cursor = cursorIn(client);
    const meta = name === 'cursor' ? { cursor } : { sidecar: { afterEventId: cursor } };
    const result = await again.request(method, { sessionId, cwd: '/tmp', mcpServers: [], _meta: meta });
    expect(metaOf(result)).toMatchObject({ mode: 'tail', eventId: client.cursors.get(sessionId) });
    expect(metaOf(result)).not.toHaveProperty('reason');
    expect(kindsOf(again.updates())).toEqual(['agent_message_chunk:last']);
    expect(again.updates().map(isReplay)).toEqual([undefined]);
  });

  it('[RP3] that is missing or bad gives everything, marked as a replay, and the response says why', async () => {
    const stage = await setStage(testScope());
    const { client, sessionId } = stage;
    await told(stage);
    const [logId = ''] = (client.cursors.get(sessionId) ?? '').split('-');
    for (const [cursor, reason] of [
      [undefined, 'no_cursor'],
      ['x', 'malformed'],
      ['other-1', 'foreign'],
      [`${logId}-999`, 'ahead'],
      [`${logId}-3~elsewhere-1`, 'diverged'],
    ] as const) {
      for (const how of cursor === undefined ? (['load'] as const) : (['load', 'resume'] as const)) {
        const again = await stage.join();
        expect(metaOf(await again[how](sessionId, cursor)), cursor).toMatchObject({ mode: 'full', reason });
        expect(kindsOf(again.updates()), reason).toEqual(WHOLE);
        expect(again.updates().map(isReplay), reason).toEqual(WHOLE.map(() => true));
      }
    }
  });

  it.each(['session/load', 'session/resume'])(
    '[CU8] that is bad replays nothing under fallback none: %s',
    async (method) => {
      const stage = await setStage(testScope());
      const { life, client, sessionId, agentSessionId } = stage;
      await told(stage);
      const again = await stage.join();
      const _meta = { sidecar: { afterEventId: 'other-1', fallback: 'none' } };
      const result = await again.request(method, { sessionId, cwd: '/tmp', mcpServers: [], _meta });
      const eventId = client.cursors.get(sessionId);
      expect(metaOf(result)).toMatchObject({ mode: 'none', reason: 'foreign', eventId });
      life.say(agentSessionId, 'live');
      await again.until('what comes next', () => again.agentText(sessionId) !== '');
      expect(kindsOf(again.updates())).toEqual(['agent_message_chunk:live']);
    },
  );

  it('[RP7] session/resume without one, or with null, replays nothing', async () => {
    const stage = await setStage(testScope());
    const { life, sessionId, agentSessionId } = stage;
    await told(stage);
    for (const meta of [{}, { cursor: null }, { sidecar: { afterEventId: null } }]) {
      const again = await stage.join();
      const result = await again.request('session/resume', { sessionId, cwd: '/tmp', mcpServers: [], _meta: meta });
      expect(metaOf(result)).toMatchObject({ mode: 'none', reason: 'no_cursor' });
      expect(again.updates()).toEqual([]);
      life.say(agentSessionId, 'live');
      await again.until('what comes next', () => again.agentText(sessionId) === 'live');
    }
  });

  it('[CU9] is in the responses of new, load, resume, fork and prompt, and each resolves', async () => {
    const stage = await setStage(testScope());
    const { client, sessionId } = stage;
    const fresh = await client.request('session/new', { cwd: '/tmp', mcpServers: [] });
    const turn = await stage.turn('question');
    const prompt = (await turn.end()).message.result;
    const again = await stage.join();
    const load = await again.load(sessionId);
    const resume = await again.resume(sessionId);
    const fork = await again.request('session/fork', { sessionId, cwd: '/tmp', mcpServers: [] });
    for (const [what, session, result] of [
      ['new', textAt(fresh, 'sessionId'), fresh],
      ['prompt', sessionId, prompt],
      ['load', sessionId, load],
      ['resume', sessionId, resume],
      ['fork', textAt(fork, 'sessionId'), fork],
    ] as const) {
      const other = await stage.join();
      const eventId = textAt(result, '_meta', 'sidecar', 'eventId');
      expect(metaOf(await other.resume(session, eventId)), what).toMatchObject({ mode: 'tail' });
      expect(other.updates(), what).toEqual([]);
    }
  });

  it('[CU5] a recorded answer that is asked for again takes nobody back', async () => {
    const stage = await setStage(testScope(), { optIn: true });
    const { life, client, sessionId, agentSessionId } = stage;
    const prompt = { sessionId, prompt: [{ type: 'text', text: 'once' }], _meta: { sidecar: { promptId: 'p' } } };
    const answer = client.ask('session/prompt', prompt);
    life.reply((await life.saw('session/prompt')).message, { stopReason: 'end_turn' });
    await answer;
    life.update(agentSessionId, { sessionUpdate: 'plan', entries: [] });
    life.say(agentSessionId, 'later');
    await client.until('what came later', () => client.agentText(sessionId) === 'later');
    const seen = client.cursors.get(sessionId);
    const { result } = (await client.ask('session/prompt', prompt)).message;
    const position = (id: unknown): ReturnType<typeof positionOf> => positionOf(parseEventId(id) as EventId);
    expect(comparePositions(position(at(result, '_meta', 'sidecar', 'eventId')), position(seen))).toBe(0);
  });
});

describe('the response', () => {
  it('[RP5] says what was replayed and why, how far, which turn runs and how many approvals wait', async () => {
    const stage = await setStage(testScope(), { optIn: true });
    const { life, client, sessionId, agentSessionId } = stage;
    await told(stage);
    const from = client.received.length;
    const turn = await stage.turn('more');
    const running = await client.until(
      'the running turn',
      ({ message }) => at(message, 'params', 'state') === 'running' && message.method === '_sidecar/turn',
      { from },
    );
    askPermission(life, agentSessionId);
    askPermission(life, agentSessionId);
    await card(client, sessionId, 1);
    const turnId = textAt(running.message, 'params', 'turnId');
    const again = await stage.join();
    const facts = { eventId: client.cursors.get(sessionId), turn: { turnId, state: 'running' }, approvals: 2 };
    expect(metaOf(await again.load(sessionId))).toEqual({ mode: 'full', reason: 'no_cursor', ...facts });
    expect(metaOf(await again.resume(sessionId))).toEqual({ mode: 'none', reason: 'no_cursor', ...facts });
    expect(metaOf(await again.resume(sessionId, cursorIn(client)))).toEqual({ mode: 'tail', ...facts });
    client.notify('session/cancel', { sessionId });
    await turn.end({ stopReason: 'cancelled' });
    expect(metaOf(await again.resume(sessionId))).toMatchObject({ approvals: 0 });
    expect(metaOf(await again.resume(sessionId))).not.toHaveProperty('turn');
  });

  it('[RP6] is what the agent last answered, unknown keys too, with the mode and options of now', async () => {
    const modes = { currentModeId: 'ask', availableModes: [{ id: 'ask', name: 'Ask' }], odd: 1 };
    const option = { id: 'm', name: 'M', type: 'select', currentValue: 'a', options: [] };
    const answer = { modes, configOptions: [option], models: { currentModelId: 'x' }, alien: { deep: [1] } };
    const stage = await setStage(testScope(), {
      handlers: { 'session/new': () => ({ sessionId: 'agent-session-1', ...answer }) },
    });
    const { life, client, sessionId, agentSessionId } = stage;
    const shown = async (): Promise<Record<string, unknown>> => {
      const { _meta, ...rest } = (await (await stage.join()).load(sessionId)) as Record<string, unknown>;
      return rest;
    };
    expect(await shown()).toEqual(answer);
    life.update(agentSessionId, { sessionUpdate: 'current_mode_update', currentModeId: 'code' });
    const options = [{ ...option, currentValue: 'b' }];
    life.update(agentSessionId, { sessionUpdate: 'config_option_update', configOptions: options });
    await client.until('the option', () => kindsOf(client.updates()).includes('config_option_update'));
    const now = { ...answer, modes: { ...modes, currentModeId: 'code' }, configOptions: options };
    expect(await shown()).toEqual(now);
    await stage.sidecar.restart();
    expect(await shown()).toEqual(now);
  });
});

describe('a connection', () => {
  it('[RP9] that attaches again has one place, and is shown nothing live before the response', async () => {
    const stage = await setStage(testScope());
    const { life, client, sessionId, agentSessionId } = stage;
    const turn = await stage.turn('go');
    const calls = Array.from({ length: 3000 }, (_, i) => `call-${i}`);
    const call = (toolCallId: string): void =>
      life.update(agentSessionId, { sessionUpdate: 'tool_call', toolCallId, title: 'T', status: 'completed' });
    const last = (toolCallId: string) => (): boolean => kindsOf(client.updates()).at(-1) === `tool_call:${toolCallId}`;
    for (const id of calls) call(id);
    await client.until('all calls', last('call-2999'));
    askPermission(life, agentSessionId, { toolCallId: 'call-0' });
    const asked = await card(client, sessionId);
    const from = client.received.length;
    const answer = client.ask('session/load', { sessionId, cwd: '/tmp', mcpServers: [] });
    // The replay takes several turns of the connection; this comes in the middle of them.
    await client.until('the replay', () => client.updates(sessionId, from).length > 0, { from });
    call('live');
    const response = client.received.indexOf(await answer);
    await client.until('what is live', last('live'));
    const shown = client.updates(sessionId, from);
    expect(kindsOf(shown)).toEqual(['user_message_chunk:go', ...[...calls, 'live'].map((id) => `tool_call:${id}`)]);
    for (const update of shown) {
      const before = client.received.indexOf(update) < response;
      expect(isReplay(update), update.text.slice(0, 200)).toBe(before ? true : undefined);
    }
    expect(client.received.indexOf(await withdrawn(client, asked))).toBeGreaterThanOrEqual(from);
    expect(client.received.indexOf(await card(client, sessionId, 1))).toBeGreaterThan(response);
    client.notify('session/cancel', { sessionId });
    await turn.end({ stopReason: 'cancelled' });
  });

  it.each([
    ['session/prompt', { prompt: [{ type: 'text', text: 'hello' }] }],
    ['session/set_mode', { modeId: 'code' }],
    ['session/set_title', { title: 'A title' }],
    ['_vendor/ask', { x: 1 }],
  ])('[RP10] that is not on a session is attached by %s, and nothing is replayed', async (method, params) => {
    const stage = await setStage(testScope());
    const { life, client, sessionId, agentSessionId } = stage;
    await told(stage);
    const other = await stage.join();
    const prompts = life.received.filter(({ message }) => message.method === method).length;
    const answer = other.ask(method, { sessionId, ...params });
    const asked = await life.saw(method, prompts);
    expect(at(asked.message, 'params', 'sessionId')).toBe(agentSessionId);
    life.say(agentSessionId, 'live');
    await client.until('what is live', () => client.agentText(sessionId).endsWith('live'));
    await other.until('what is live', () => other.agentText(sessionId) === 'live');
    life.reply(asked.message, { stopReason: 'end_turn' });
    await answer;
    expect(kindsOf(other.updates()).filter((kind) => kind !== 'current_mode_update')).toEqual([
      'agent_message_chunk:live',
    ]);
    expect(other.received.filter(({ message }) => isResponse(message))).toHaveLength(2);
  });

  it('[CL3] that is given the answer to its fork again is on the fork', async () => {
    const stage = await setStage(testScope());
    const { life, client, sessionId } = stage;
    await told(stage);
    const fork = { sessionId, cwd: '/tmp', mcpServers: [], _meta: { sidecar: { requestKey: 'k' } } };
    const first = await stage.join({ clientId: 'c' });
    const forked = await first.request('session/fork', fork);
    first.cut();
    const again = await stage.join({ clientId: 'c' });
    expect(await again.request('session/fork', fork)).toEqual(forked);
    const forkId = textAt(forked, 'sessionId');
    const answer = client.ask('session/prompt', { sessionId: forkId, prompt: [{ type: 'text', text: 'on the fork' }] });
    await again.until('the prompt', () => kindsOf(again.updates(forkId)).includes('user_message_chunk:on the fork'));
    expect(kindsOf(again.updates())[0]).not.toBe('user_message_chunk:question');
    life.reply((await life.saw('session/prompt', 1)).message, { stopReason: 'end_turn' });
    await answer;
  });
});
