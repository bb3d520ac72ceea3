/** Sessions beside the agent's: imported, forked, closed, deleted. */
import { describe, expect, it } from 'vitest';
import { at, type Message, textAt, updateOf } from '../support/json.ts';
import { RpcError, type RawClient } from '../support/raw-client.ts';
import { testScope } from '../support/scope.ts';
import type { AgentHandler, AgentLife } from '../support/scripted-agent.ts';
import { waitFor } from '../support/wait-for.ts';
import { setStage, type Stage } from '../support/stage.ts';

const LOAD = { loadSession: true, sessionCapabilities: { list: {} } };

function requests(life: AgentLife, method: string): Message[] {
  return life.received.map(({ message }) => message).filter((message) => message.method === method);
}

async function failure(asked: Promise<unknown>): Promise<RpcError> {
  const error = await asked.then(
    () => undefined,
    (caught: unknown) => caught,
  );
  if (!(error instanceof RpcError)) throw new Error('it did not fail');
  return error;
}

async function oneTurn(stage: Stage, text: string, answer: string): Promise<string> {
  const turn = await stage.turn(text);
  stage.life.say(stage.agentSessionId, answer);
  return textAt((await turn.end()).message, 'result', '_meta', 'sidecar', 'eventId');
}

/** What a fresh client sees of a session: `user:...` and `agent:...`. */
async function shownOf(stage: Stage, sessionId: string, client?: RawClient): Promise<string[]> {
  const fresh = client ?? (await stage.join());
  await fresh.load(sessionId);
  const shown: string[] = [];
  for (const { message } of fresh.updates(sessionId)) {
    const update = updateOf(message);
    const text = at(update, 'content', 'text');
    if (typeof text === 'string') shown.push(`${textAt(update, 'sessionUpdate').split('_')[0] ?? ''}:${text}`);
  }
  fresh.close();
  return shown;
}

describe('sessions that only the agent knows', () => {
  const replay: AgentHandler = (request, life) => {
    const sessionId = textAt(request.params, 'sessionId');
    if (sessionId === 'empty') {
      life.update(sessionId, { sessionUpdate: 'available_commands_update', availableCommands: [] });
      return {};
    }
    if (!sessionId.startsWith('old')) {
      life.fail(request, -32602, 'what is that');
      return undefined;
    }
    life.update(sessionId, { sessionUpdate: 'session_info_update', title: 'Old one' });
    life.update(sessionId, { sessionUpdate: 'user_message_chunk', content: { type: 'text', text: 'asked' } });
    life.say(sessionId, 'answ');
    life.say(sessionId, 'ered');
    life.reply(request, { modes: { currentModeId: 'm', availableModes: [] } });
    // Its last words come after the response.
    life.update(sessionId, { sessionUpdate: 'tool_call', toolCallId: 't', title: 'T', status: 'completed' });
    return undefined;
  };
  const handlers = {
    'session/load': replay,
    'session/list': () => ({
      sessions: [
        { sessionId: 'old-1', cwd: '/tmp' },
        { sessionId: 'agent-session-1', cwd: '/tmp' },
      ],
    }),
  };

  it('[SS2] are listed after ours, imported once when they are loaded, and then ours', async () => {
    const stage = await setStage(testScope(), { capabilities: LOAD, handlers });
    const { client, life } = stage;
    const ids = async (): Promise<string[]> => {
      const listed = (await client.request('session/list', {})) as { sessions: { sessionId: string }[] };
      return listed.sessions.map(({ sessionId }) => sessionId);
    };
    expect(await ids()).toEqual([stage.sessionId, 'old-1']);
    const other = await stage.join();
    const [loaded] = await Promise.all([client.load('old-1'), other.load('old-1')]);
    expect(at(loaded, 'modes', 'currentModeId')).toBe('m');
    expect(at(loaded, '_meta', 'sidecar', 'mode')).toBe('full');
    expect(requests(life, 'session/load')).toHaveLength(1);
    const expected = ['user:asked', 'agent:answered'];
    expect(await shownOf(stage, 'old-1')).toEqual(expected);
    expect(client.updates('old-1').filter(({ text }) => text.includes('"tool_call"'))).toHaveLength(1);
    expect((await ids()).toSorted()).toEqual([stage.sessionId, 'old-1'].toSorted());
    // Again and again, by others, and after a restart: never again from the agent.
    for (let n = 0; n < 10; n++) await client.load('old-1');
    await stage.sidecar.restart();
    expect(await shownOf(stage, 'old-1')).toEqual(expected);
    expect(requests(life, 'session/load')).toHaveLength(1);
  });

  it('[SS2] that replay nothing, or that the agent does not know either, are unknown and leave nothing behind', async () => {
    const stage = await setStage(testScope(), { capabilities: LOAD, handlers });
    for (const sessionId of ['empty', 'nobody-knows-it']) {
      const error = await failure(stage.client.load(sessionId));
      expect([error.code, at(error.data, 'sessionId')]).toEqual([-32002, sessionId]);
      expect((await failure(stage.client.prompt(sessionId, 'x'))).code).toBe(-32002);
    }
    const listed = (await stage.client.request('session/list', {})) as { sessions: unknown[] };
    expect(listed.sessions).toHaveLength(2);
  });
});

describe('session/fork', () => {
  it('[SS5] at the last turn: the child has what was, and shares no future', async () => {
    const stage = await setStage(testScope());
    const { client, sessionId } = stage;
    await oneTurn(stage, 'one', 'first');
    const forked = await client.request('session/fork', { sessionId, cwd: '/tmp', mcpServers: [] });
    const childId = textAt(forked, 'sessionId');
    expect(childId).not.toBe(sessionId);
    expect(textAt(forked, '_meta', 'sidecar', 'eventId').split('-')[0]).not.toBe(
      (client.cursors.get(sessionId) ?? '').split('-')[0],
    );
    await oneTurn(stage, 'two', 'second');
    expect(await shownOf(stage, childId)).toEqual(['user:one', 'agent:first']);
    expect(await shownOf(stage, sessionId)).toEqual(['user:one', 'agent:first', 'user:two', 'agent:second']);
    // Its first prompt brings the agent what was said until then, and not what came later.
    const asked = client.ask('session/prompt', { sessionId: childId, prompt: [{ type: 'text', text: 'other' }] });
    const { message } = await stage.life.saw('session/prompt', 2);
    expect(at(message, 'params', 'sessionId')).toBe('agent-session-2');
    expect(textAt(message, 'params', 'prompt', 0, 'text')).toContain('User: one\n\nAssistant: first');
    expect(textAt(message, 'params', 'prompt', 0, 'text')).not.toContain('second');
    stage.life.reply(message, { stopReason: 'end_turn' });
    await asked;
    expect((await shownOf(stage, sessionId)).at(-1)).toBe('agent:second');
    await stage.sidecar.restart();
    const shown = await shownOf(stage, childId);
    expect(shown.slice(0, 2)).toEqual(['user:one', 'agent:first']);
    expect(shown.at(-1)).toBe('user:other');
  });

  it('[SS5] the agent forks an idle session at its last turn; what it replays is not kept twice', async () => {
    const capabilities = { sessionCapabilities: { fork: {} } };
    const fork: AgentHandler = (request, life) => {
      life.update('fork-1', { sessionUpdate: 'user_message_chunk', content: { type: 'text', text: 'one' } });
      life.say('fork-1', 'first');
      life.reply(request, { sessionId: 'fork-1' });
      life.update('fork-1', { sessionUpdate: 'user_message_chunk', content: { type: 'text', text: 'one' } });
      life.say('fork-1', 'first');
      return undefined;
    };
    const stage = await setStage(testScope(), { capabilities, handlers: { 'session/fork': fork } });
    const { client, sessionId, life } = stage;
    const first = await oneTurn(stage, 'one', 'first');
    const forked = await client.request('session/fork', { sessionId, cwd: '/tmp' });
    const childId = textAt(forked, 'sessionId');
    expect(at(requests(life, 'session/fork')[0], 'params', 'sessionId')).toBe('agent-session-1');
    const asked = client.ask('session/prompt', { sessionId: childId, prompt: [{ type: 'text', text: 'other' }] });
    const { message } = await life.saw('session/prompt', 1);
    expect(at(message, 'params')).toEqual({ sessionId: 'fork-1', prompt: [{ type: 'text', text: 'other' }] });
    life.say('fork-1', 'branch');
    life.reply(message, { stopReason: 'end_turn' });
    await asked;
    expect(await shownOf(stage, childId)).toEqual(['user:one', 'agent:first', 'user:other', 'agent:branch']);
    // At an earlier turn the agent cannot.
    await oneTurnAt(stage, 2);
    const meta = { _meta: { sidecar: { atEventId: first } } };
    const early = await client.request('session/fork', { sessionId, cwd: '/tmp', ...meta });
    expect(requests(life, 'session/fork')).toHaveLength(1);
    expect(await shownOf(stage, textAt(early, 'sessionId'))).toEqual(['user:one', 'agent:first']);
  });

  it('[SS5] is refused when the session is deleted while the agent makes the fork', async () => {
    const capabilities = { sessionCapabilities: { fork: {} } };
    const stage = await setStage(testScope(), { capabilities, handlers: { 'session/fork': () => undefined } });
    const { client, sessionId, life } = stage;
    await oneTurn(stage, 'one', 'first');
    const forked = failure(client.request('session/fork', { sessionId, cwd: '/tmp' }));
    const { message } = await life.saw('session/fork');
    await (await stage.join()).request('session/delete', { sessionId });
    life.reply(message, { sessionId: 'fork-1' });
    expect((await forked).code).toBe(-32002);
    const listed = (await client.request('session/list', {})) as { sessions: unknown[] };
    expect(listed.sessions).toEqual([]);
  });

  it('[SS5] an agent that does not answer in 30 s is done without', async () => {
    const capabilities = { sessionCapabilities: { fork: {} } };
    const stage = await setStage(testScope(), { capabilities, handlers: { 'session/fork': () => undefined } });
    const { client, sessionId } = stage;
    await oneTurn(stage, 'one', 'first');
    client.sendMessage({ id: 'fork', method: 'session/fork', params: { sessionId, cwd: '/tmp' } });
    const forked = await client.until('the fork', ({ message }) => message.id === 'fork', { timeoutMs: 40_000 });
    const childId = textAt(forked.message, 'result', 'sessionId');
    expect(await shownOf(stage, childId)).toEqual(['user:one', 'agent:first']);
  }, 60_000);

  it('[SS5] is refused inside a turn, and for ids that are none of its events', async () => {
    const stage = await setStage(testScope(), { optIn: true, args: ['--drain', '0s'] });
    const { client, sessionId } = stage;
    const end = await oneTurn(stage, 'one', 'first');
    await stage.turn('two');
    await client.until('the start of it', () => {
      return client.received.filter(({ message }) => at(message, 'params', 'state') === 'running').length === 2;
    });
    const starts = client.received.filter(({ message }) => at(message, 'params', 'state') === 'running');
    const started = starts.at(-1);
    const [logId = ''] = end.split('-');
    for (const atEventId of [
      textAt(started?.message, 'params', 'eventId'),
      `${logId}-99999`,
      'other-3',
      'nonsense',
      7,
    ]) {
      const error = await failure(
        client.request('session/fork', { sessionId, cwd: '/tmp', _meta: { sidecar: { atEventId } } }),
      );
      expect(error.code, String(atEventId)).toBe(-32602);
    }
    // Without an id it is the end of the last finished turn, whatever runs.
    const forked = await client.request('session/fork', { sessionId, cwd: '/tmp' });
    expect(await shownOf(stage, textAt(forked, 'sessionId'))).toEqual(['user:one', 'agent:first']);
  });

  it.each([
    ['tool call', { sessionUpdate: 'tool_call', toolCallId: 't1', title: 'T', status: 'in_progress' }],
    ['compaction', { sessionUpdate: 'compaction_update', compactionId: 't1', status: 'in_progress' }],
  ])('[SS5] is refused in a %s that goes on behind its turn', async (_name, begun) => {
    const stage = await setStage(testScope(), { optIn: true });
    const { client, life, sessionId, agentSessionId } = stage;
    const first = await oneTurn(stage, 'one', 'first');
    const turn = await stage.turn('two');
    life.update(agentSessionId, begun);
    const end = textAt((await turn.end()).message, 'result', '_meta', 'sidecar', 'eventId');
    const fork = (sidecar: object): Promise<unknown> =>
      client.request('session/fork', { sessionId, cwd: '/tmp', _meta: { sidecar } });
    for (const where of [{}, { atEventId: end }]) {
      const error = await failure(fork(where));
      expect([error.code, error.message]).toEqual([-32602, expect.stringContaining('tool call') as string]);
    }
    expect(await shownOf(stage, textAt(await fork({ atEventId: first }), 'sessionId'))).toHaveLength(2);
    const kind = begun.sessionUpdate.replace(/^tool_call$/, 'tool_call_update');
    life.update(agentSessionId, { ...begun, sessionUpdate: kind, status: 'completed' });
    await waitFor('the fork', () => fork({}).catch(() => undefined));
  });

  it('[SS5] a tool call that a later turn has left behind is over', async () => {
    const stage = await setStage(testScope(), { optIn: true });
    const turn = await stage.turn('one');
    stage.life.update(stage.agentSessionId, { sessionUpdate: 'tool_call', toolCallId: 't1', title: 'T' });
    await turn.end();
    await oneTurn(stage, 'two', 'second');
    const forked = await stage.client.request('session/fork', { sessionId: stage.sessionId, cwd: '/tmp' });
    expect((await shownOf(stage, textAt(forked, 'sessionId'))).at(-1)).toBe('agent:second');
  });
});

async function oneTurnAt(stage: Stage, n: number): Promise<void> {
  const { sessionId, client, life } = stage;
  const asked = client.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'more' }] });
  const { message } = await life.saw('session/prompt', n);
  life.reply(message, { stopReason: 'end_turn' });
  await asked;
}

describe('session/close', () => {
  it('[SS4] of the last client ends the turn, then the agent part; the session can be loaded and goes on', async () => {
    const capabilities = { sessionCapabilities: { close: {}, resume: {} } };
    const handlers = { 'session/close': () => ({}), 'session/resume': () => ({}) };
    const stage = await setStage(testScope(), { capabilities, handlers });
    const { client, life, sessionId, agentSessionId } = stage;
    const watcher = await stage.join();
    await watcher.load(sessionId);
    await oneTurn(stage, 'one', 'first');
    await watcher.request('session/close', { sessionId });
    const turn = await stage.turn('two');
    const closing = client.request('session/close', { sessionId });
    await life.saw('session/cancel');
    expect(requests(life, 'session/close')).toEqual([]);
    life.say(agentSessionId, 'last words');
    life.reply(turn.request, { stopReason: 'cancelled' });
    await closing;
    expect(at((await life.saw('session/close')).message, 'params', 'sessionId')).toBe(agentSessionId);
    expect(await shownOf(stage, sessionId)).toEqual(['user:one', 'agent:first', 'user:two', 'agent:last words']);
    const again = await stage.join();
    await again.load(sessionId);
    const asked = again.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'three' }] });
    const { message } = await life.saw('session/prompt', 2);
    expect(requests(life, 'session/resume')).toHaveLength(1);
    life.reply(message, { stopReason: 'end_turn' });
    expect(at((await asked).message, 'result', 'stopReason')).toBe('end_turn');
  });
});

describe('session/delete', () => {
  it('[SS3] takes the log away for everyone and tells the agent; its copy is neither listed nor imported', async () => {
    const capabilities = { ...LOAD, sessionCapabilities: { list: {}, delete: {} } };
    const stage = await setStage(testScope(), {
      capabilities,
      handlers: {
        'session/delete': () => ({}),
        'session/list': () => ({ sessions: [{ sessionId: 'agent-session-1', cwd: '/tmp' }] }),
        'session/load': () => ({}),
      },
    });
    const { client, life, sessionId, agentSessionId } = stage;
    await oneTurn(stage, 'one', 'a secret of the deleted session');
    const forked = await client.request('session/fork', { sessionId, cwd: '/tmp' });
    await oneTurn(stage, 'two', 'told after the fork');
    const watcher = await stage.join();
    await watcher.load(sessionId);
    await client.request('session/delete', { sessionId });
    expect(at((await life.saw('session/delete')).message, 'params', 'sessionId')).toBe(agentSessionId);
    expect((await failure(watcher.load(sessionId))).code).toBe(-32002);
    expect((await failure(client.prompt(sessionId, 'x'))).code).toBe(-32002);
    const listed = (await client.request('session/list', {})) as { sessions: { sessionId: string }[] };
    expect(listed.sessions.map((entry) => entry.sessionId)).toEqual([textAt(forked, 'sessionId')]);
    expect(requests(life, 'session/load')).toEqual([]);
    // What the fork shares stays, also over a restart.
    await stage.sidecar.restart();
    expect(await shownOf(stage, textAt(forked, 'sessionId'))).toEqual([
      'user:one',
      'agent:a secret of the deleted session',
    ]);
    const fresh = await stage.join();
    expect((await failure(fresh.load(sessionId))).code).toBe(-32002);
  });
});
