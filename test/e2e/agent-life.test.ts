/** The agent's life: however it ends, the turn says so, the clients stay, and the next prompt goes on. */
import { describe, expect, it } from 'vitest';
import { endAgent, eventsOf, methods, nextLife, oneTurn, promptTo } from '../support/agent-lives.ts';
import { at, updateOf } from '../support/json.ts';
import type { RawClient } from '../support/raw-client.ts';
import { testScope } from '../support/scope.ts';
import type { AgentLife } from '../support/scripted-agent.ts';
import { setStage } from '../support/stage.ts';
import { waitFor } from '../support/wait-for.ts';

const RESUME = { sessionCapabilities: { resume: {} } };
const LOAD = { loadSession: true };

describe('the end of the agent in a turn', () => {
  it.each([
    ['exits', (life: AgentLife) => life.exit(3), /exited with code 3/],
    ['is killed by the OS', (life: AgentLife) => process.kill(life.pid, 'SIGKILL'), /ended by SIGKILL/],
    ['closes its stdout and lives on', (life: AgentLife) => life.closeStdout(), /the agent (exited|was ended)/],
  ])(
    '[AG1] it %s: interrupted, with its last words; clients stay and the next prompt works',
    async (_name, end, how) => {
      const stage = await setStage(testScope(), { capabilities: RESUME, handlers: { 'session/resume': () => ({}) } });
      const { life, client, sessionId, agentSessionId } = stage;
      const watcher = await stage.join();
      await watcher.load(sessionId);
      const turn = await stage.turn();
      life.say(agentSessionId, 'half');
      life.stderr('panic: out of luck\n');
      await waitFor('the last words', () => stage.sidecar.stderr.includes('out of luck'));
      end(life);
      const { message } = await turn.answer;
      expect(at(message, 'error', 'data')).toMatchObject({ kind: 'interrupted', code: 'PROMPT_OUTCOME_UNKNOWN' });
      expect(message.error?.message).toMatch(how);
      expect(message.error?.message).toContain('panic: out of luck');
      expect([client.closed, watcher.closed]).toEqual([undefined, undefined]);
      await promptTo(stage, 1, 'again');
      expect(watcher.agentText(sessionId)).toBe('half');
    },
  );

  it('[AG1] [RE3] [RE4] its tool calls, approvals and subagents end before the turn does', async () => {
    const stage = await setStage(testScope(), { optIn: true });
    const { life, client, agentSessionId, sessionId } = stage;
    const turn = await stage.turn();
    const update = (value: object): void => life.update(agentSessionId, value);
    update({ sessionUpdate: 'tool_call', toolCallId: 'ran', title: 'Ran', status: 'in_progress' });
    update({ sessionUpdate: 'tool_call', toolCallId: 'waits', title: 'Waits', status: 'pending' });
    update({ sessionUpdate: 'subagent_update', sessionId: 'child', state: { state: 'running' } });
    const options = [{ optionId: 'y', name: 'Yes', kind: 'allow_once' }];
    const params = { sessionId: agentSessionId, toolCall: { toolCallId: 'waits' }, options };
    life.send({ id: 'q1', method: 'session/request_permission', params });
    const card = await client.saw('session/request_permission');
    life.exit(1);
    await turn.answer;
    const withdrawn = await client.saw('$/cancel_request');
    expect(at(withdrawn.message, 'params', 'requestId')).toBe(card.message.id);
    const fresh = await stage.join();
    await fresh.load(sessionId);
    const ends = fresh.updates(sessionId).map(({ message }) => updateOf(message));
    const closer = (id: string): unknown =>
      ends.find((entry) => entry?.['toolCallId'] === id && entry['status'] === 'failed');
    expect(closer('ran')).toMatchObject({ _meta: { sidecar: { code: 'TOOL_OUTCOME_UNKNOWN' } } });
    expect(closer('waits')).toMatchObject({ _meta: { sidecar: { code: 'TOOL_NOT_STARTED' } } });
    const types = (await eventsOf(stage)).map(({ type }) => type);
    expect(types.slice(-1)).toEqual(['turn_ended']);
    expect(types.filter((type) => type === 'approval_interrupted')).toHaveLength(1);
    expect(ends.findLast((entry) => entry?.['sessionUpdate'] === 'subagent_update')).toMatchObject({
      state: { state: 'idle' },
    });
  });

  it('[AG1] a queued prompt stays queued and goes to the next process', async () => {
    const stage = await setStage(testScope(), { capabilities: RESUME, handlers: { 'session/resume': () => ({}) } });
    const turn = await stage.turn('one');
    const { sessionId } = stage;
    const queued = stage.client.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'two' }] });
    await waitFor(
      'the queued prompt',
      async () => (await eventsOf(stage)).filter((e) => e.type === 'turn_queued').length === 2,
    );
    stage.life.exit(1);
    expect(at((await turn.answer).message, 'error', 'data', 'kind')).toBe('interrupted');
    const life = await nextLife(stage);
    const { message } = await life.saw('session/prompt');
    expect(at(message, 'params', 'prompt', 0, 'text')).toBe('two');
    life.reply(message, { stopReason: 'end_turn' });
    expect(at((await queued).message, 'result', 'stopReason')).toBe('end_turn');
  });
});

describe('an agent that dies at its start', () => {
  it('[AG10] is started again after a pause, and the prompt fails with its last words', async () => {
    const stage = await setStage(testScope(), { capabilities: RESUME });
    await oneTurn(stage);
    stage.agent.handlers.set('initialize', (_request, life) => {
      life.stderr('no licence\n');
      life.exit(1);
    });
    await endAgent(stage);
    const before = performance.now();
    for (let n = 0; n < 3; n++) {
      const prompt = { sessionId: stage.sessionId, prompt: [{ type: 'text', text: 'hi' }] };
      const { message } = await stage.client.ask('session/prompt', prompt);
      expect(at(message, 'error', 'data', 'kind')).toBe('agent_unavailable');
      expect(JSON.stringify(message.error)).toContain('no licence');
    }
    // 250 ms, 500 ms, 1 s: never a busy loop.
    expect(performance.now() - before).toBeGreaterThan(1000);
    expect(stage.client.closed).toBeUndefined();
  }, 30_000);
});

describe('binding', () => {
  it('[AG3] resumes where the agent can, and tells clients that opted in', async () => {
    const handlers = { 'session/resume': () => ({ modes: { currentModeId: 'a', availableModes: [] } }) };
    const stage = await setStage(testScope(), { capabilities: { ...RESUME, ...LOAD }, handlers, optIn: true });
    await oneTurn(stage);
    await endAgent(stage);
    const { life, received } = await promptTo(stage, 1, 'more');
    expect(methods(life)).toEqual(['initialize', 'session/resume', 'session/prompt']);
    expect(at(received.message, 'params', 'prompt')).toEqual([{ type: 'text', text: 'more' }]);
    const told = stage.client.received.filter(({ message }) => message.method === '_sidecar/agent');
    expect(told.map(({ message }) => at(message, 'params', 'state'))).toContain('exited');
    expect(at(told.at(-1)?.message, 'params')).toMatchObject({ state: 'ready', continuity: 'resumed' });
    expect(stage.client.agentText(stage.sessionId)).toBe('first answer');
  });

  it('[AG8] a load that replays nothing of the conversation did not restore it: primed, with a note', async () => {
    const handlers = { 'session/load': () => ({}) };
    const stage = await setStage(testScope(), { capabilities: LOAD, handlers, optIn: true });
    const stock = await stage.join();
    await stock.load(stage.sessionId);
    await oneTurn(stage);
    await endAgent(stage);
    const { life, received } = await promptTo(stage, 1, 'more');
    expect(methods(life)).toEqual(['initialize', 'session/load', 'session/new', 'session/prompt']);
    const prompt = at(received.message, 'params', 'prompt') as { text: string }[];
    expect(prompt).toHaveLength(2);
    expect(prompt[0]?.text).toMatch(/earlier conversation.*\nUser: first question\n\nAssistant: first answer\n/s);
    expect(prompt[1]).toEqual({ type: 'text', text: 'more' });
    expect(at(received.message, 'params', 'sessionId')).toBe('agent-session-2');
    expect(stock.agentText(stage.sessionId)).toMatch(/^first answer\[The agent could not take up this session/);
    const told = stage.client.received.findLast(({ message }) => message.method === '_sidecar/agent');
    expect(at(told?.message, 'params')).toMatchObject({ state: 'ready', continuity: 'primed' });
    // The text that it was given is in no replay.
    const fresh = await stage.join();
    await fresh.load(stage.sessionId);
    expect(JSON.stringify(fresh.received)).not.toContain('<earlier-conversation>');
    // It knows the conversation now: the next process restores that session, or is primed again.
    await endAgent(stage, life);
    const again = await promptTo(stage, 2, 'and more');
    expect(methods(again.life)).toEqual(['initialize', 'session/load', 'session/new', 'session/prompt']);
  });

  it('[AG8] an agent that died before it had the conversation is given it again, not resumed', async () => {
    const stage = await setStage(testScope());
    await oneTurn(stage);
    await endAgent(stage);
    const lost = stage.client.ask('session/prompt', {
      sessionId: stage.sessionId,
      prompt: [{ type: 'text', text: 'x' }],
    });
    const second = await nextLife(stage);
    await second.saw('session/prompt');
    stage.agent.handlers.set('initialize', () => ({ protocolVersion: 1, agentCapabilities: RESUME }));
    second.exit(1);
    expect(at((await lost).message, 'error', 'data', 'kind')).toBe('interrupted');
    const { life, received } = await promptTo(stage, 2, 'y');
    expect(methods(life)).toEqual(['initialize', 'session/new', 'session/prompt']);
    expect(at(received.message, 'params', 'prompt', 0, 'text')).toContain('first answer');
  });

  it('[AG3] when nothing works the prompt fails, and never begins anew in silence', async () => {
    const args = ['--restore', 'resume,load'];
    const stage = await setStage(testScope(), { args, capabilities: { ...RESUME, ...LOAD }, optIn: true });
    const refuse = (request: never, life: AgentLife): void => life.fail(request, -32603, 'no such session');
    stage.agent.handlers.set('session/resume', refuse as never);
    stage.agent.handlers.set('session/load', refuse as never);
    await oneTurn(stage);
    await endAgent(stage);
    const prompt = { sessionId: stage.sessionId, prompt: [{ type: 'text', text: 'x' }] };
    const { message } = await stage.client.ask('session/prompt', prompt);
    expect(at(message, 'error', 'data', 'kind')).toBe('agent_unavailable');
    expect(message.error?.message).toContain('no such session');
    const told = stage.client.received.findLast((entry) => entry.message.method === '_sidecar/turn');
    expect(at(told?.message, 'params')).toMatchObject({ state: 'ended', error: { kind: 'agent_unavailable' } });
    expect(methods(await nextLife(stage))).toEqual(['initialize', 'session/resume', 'session/load']);
  });

  it("[AG5] -32000 while binding ends the turn with the agent's error unchanged", async () => {
    const stage = await setStage(testScope(), { capabilities: RESUME });
    await oneTurn(stage);
    stage.agent.handlers.set('session/resume', (request, life) => {
      life.send({ id: request.id, error: { code: -32000, message: 'log in', data: { x: 1 } } });
    });
    await endAgent(stage);
    const prompt = { sessionId: stage.sessionId, prompt: [{ type: 'text', text: 'x' }] };
    const { message } = await stage.client.ask('session/prompt', prompt);
    expect(message.error).toEqual({ code: -32000, message: 'log in', data: { x: 1 } });
  });

  for (const method of ['initialize', 'session/resume']) {
    it(`clients that were told that the agent starts are told that it failed: ${method} is answered with an error`, async () => {
      const stage = await setStage(testScope(), { capabilities: RESUME, optIn: true });
      await oneTurn(stage);
      stage.agent.handlers.set(method, (request, life) => life.fail(request, -32000, 'log in'));
      await endAgent(stage);
      const prompt = { sessionId: stage.sessionId, prompt: [{ type: 'text', text: 'x' }] };
      const { message } = await stage.client.ask('session/prompt', prompt);
      expect(message.error).toMatchObject({ code: -32000, message: 'log in' });
      const told = stage.client.received.filter((entry) => entry.message.method === '_sidecar/agent').slice(-2);
      expect(told.map((entry) => at(entry.message, 'params'))).toEqual([
        { sessionId: stage.sessionId, state: 'starting' },
        { sessionId: stage.sessionId, state: 'failed', message: 'log in' },
      ]);
    });
  }

  it('[AG7] authenticate is repeated; mode and options are set again, what is refused is named', async () => {
    const option = (id: string, currentValue: string): object => ({
      id,
      name: id,
      type: 'select',
      currentValue,
      options: [],
    });
    const configOptions = [option('model', 'small'), option('effort', 'low')];
    const modes = {
      currentModeId: 'ask',
      availableModes: [
        { id: 'ask', name: 'Ask' },
        { id: 'code', name: 'Code' },
      ],
    };
    const stage = await setStage(testScope(), {
      capabilities: RESUME,
      handlers: {
        authenticate: () => ({}),
        'session/new': () => ({ sessionId: 'agent-session-1', modes, configOptions }),
        'session/resume': () => ({ modes, configOptions }),
        'session/set_mode': () => ({}),
        'session/set_config_option': () => ({ configOptions: [option('model', 'large'), option('effort', 'low')] }),
      },
    });
    const { client, sessionId } = stage;
    await client.request('authenticate', { methodId: 'key' });
    await client.request('session/set_mode', { sessionId, modeId: 'code' });
    await client.request('session/set_config_option', { sessionId, configId: 'model', value: 'large' });
    await oneTurn(stage);
    stage.agent.handlers.set('session/set_config_option', ((request: never, life: AgentLife) =>
      life.fail(request, -32602, 'not in this plan')) as never);
    await endAgent(stage);
    const { life } = await promptTo(stage, 1, 'more');
    expect(methods(life)).toEqual([
      'initialize',
      'authenticate',
      'session/resume',
      'session/set_mode',
      'session/set_config_option',
      'session/prompt',
    ]);
    const asked = life.received.find(({ message }) => message.method === 'session/set_config_option');
    expect(at(asked?.message, 'params')).toEqual({ sessionId: 'agent-session-1', configId: 'model', value: 'large' });
    const fresh = await stage.join();
    const loaded = await fresh.load(sessionId);
    expect(at(loaded, '_meta', 'sidecar', 'notApplied')).toEqual(['configOptions.model']);
    expect(at(loaded, 'modes', 'currentModeId')).toBe('code');
    expect(at(loaded, 'configOptions', 0, 'currentValue')).toBe('small');
  });
});

it('[AG1] 20 reconnects cost one agent process, which is asked to load nothing', async () => {
  const stage = await setStage(testScope(), { capabilities: { ...RESUME, ...LOAD } });
  await oneTurn(stage);
  for (let n = 0; n < 20; n++) {
    const client: RawClient = await stage.join();
    await (n % 2 === 0 ? client.load(stage.sessionId) : client.resume(stage.sessionId));
    client.cut();
  }
  const events = (await eventsOf(stage)).length;
  expect(events).toBe(6);
  await oneTurn(stage, 'again');
  expect(stage.agent.lives).toHaveLength(1);
  expect(methods(stage.life)).toEqual(['initialize', 'session/new', 'session/prompt', 'session/prompt']);
  expect((await eventsOf(stage)).length).toBeGreaterThan(events);
});

it('[AG9] an idle agent is stopped, and the next prompt brings it back; one that cannot restore is left alone', async () => {
  const args = ['--agent-idle', '1500ms'];
  const stage = await setStage(testScope(), { args, capabilities: RESUME, handlers: { 'session/resume': () => ({}) } });
  const other = await setStage(testScope(), { args });
  await oneTurn(other);
  await stage.life.until('its end', (life) => life.closed);
  await waitFor('the sidecar to know it', () => stage.sidecar.stderr.includes('the agent was stopped'));
  const { life } = await promptTo(stage, 1, 'more');
  expect(methods(life)).toEqual(['initialize', 'session/resume', 'session/prompt']);
  // Not while a turn runs.
  const turn = stage.client.ask('session/prompt', {
    sessionId: stage.sessionId,
    prompt: [{ type: 'text', text: 'z' }],
  });
  const { message } = await life.saw('session/prompt', 1);
  await new Promise((resolve) => setTimeout(resolve, 2500));
  expect(life.closed).toBe(false);
  life.reply(message, { stopReason: 'end_turn' });
  await turn;
  expect(other.life.closed).toBe(false);
});
