/** Everything that happens in a session is recorded and delivered in one order, whoever is there to see it. */
import { describe, expect, it } from 'vitest';
import { at, isResponse, textAt } from '../support/json.ts';
import { testScope } from '../support/scope.ts';
import { kindsOf, setStage } from '../support/stage.ts';

describe('updates at unusual times', () => {
  it('[EV9] before the response to session/new: after it at the client, and in the log', async () => {
    const stage = await setStage(testScope());
    const { agent, client } = stage;
    agent.handlers.set('session/new', (_request, life) => {
      life.update('early', {
        sessionUpdate: 'available_commands_update',
        availableCommands: [{ name: 'a', description: 'b' }],
      });
      life.say('early', 'before ');
      life.say('early', 'the response');
      return { sessionId: 'early' };
    });
    const from = client.received.length;
    const sessionId = await client.newSession();
    await client.until('the text', () => client.agentText(sessionId) === 'before the response', { from });
    const order = client.received.slice(from).map(({ message }) => (isResponse(message) ? 'response' : 'update'));
    expect(order[0]).toBe('response');
    const late = await stage.join();
    await late.load(sessionId);
    const kinds = kindsOf(late.updates(sessionId));
    expect(kinds).toEqual(['available_commands_update', 'agent_message_chunk:before the response']);
  });

  it("[EV10] after the prompt's stop reason, and outside of any turn", async () => {
    const stage = await setStage(testScope());
    const { life, client, sessionId, agentSessionId } = stage;
    const turn = await stage.turn('first');
    life.say(agentSessionId, 'in the turn');
    life.reply(turn.request, { stopReason: 'end_turn' });
    life.say(agentSessionId, ', late');
    await turn.answer;
    await client.until('the late text', () => client.agentText(sessionId) === 'in the turn, late');
    life.update(agentSessionId, { sessionUpdate: 'tool_call', toolCallId: 't', title: 'T', status: 'completed' });
    await client.until('the tool call', ({ text }) => text.includes('"tool_call"'));
    const response = client.received.findIndex(
      ({ message }) => message === undefined || at(message, 'result', 'stopReason') === 'end_turn',
    );
    const before = client.received.slice(0, response).filter(({ text }) => text.includes(', late'));
    expect(before).toEqual([]);
    const late = await stage.join();
    await late.load(sessionId);
    expect(late.agentText(sessionId)).toBe('in the turn, late');
    expect(kindsOf(late.updates(sessionId)).at(-1)).toBe('tool_call:t');
  });

  it('for an unknown child session: to the clients of the session whose turn runs, under the child id', async () => {
    const stage = await setStage(testScope());
    const { life, client, sessionId, agentSessionId } = stage;
    const other = await stage.join();
    const otherSession = await other.newSession();
    const turn = await stage.turn();
    life.say(agentSessionId, 'parent ');
    life.say('child-1', 'child');
    life.update('child-1', { sessionUpdate: 'tool_call', toolCallId: 'c', title: 'C', status: 'in_progress' });
    life.say(agentSessionId, 'again');
    await turn.end();
    const shown = client
      .updates()
      .map(({ message }) => [at(message, 'params', 'sessionId'), at(message, 'params', 'update', 'sessionUpdate')]);
    const expected = [
      [sessionId, 'agent_message_chunk'],
      ['child-1', 'agent_message_chunk'],
      ['child-1', 'tool_call'],
      [sessionId, 'agent_message_chunk'],
    ];
    expect(shown).toEqual(expected);
    const late = await stage.join();
    await late.load(sessionId);
    expect(
      late
        .updates()
        .map(({ message }) => [at(message, 'params', 'sessionId'), at(message, 'params', 'update', 'sessionUpdate')]),
    ).toEqual([[sessionId, 'user_message_chunk'], ...expected]);
    expect(other.updates()).toEqual([]);
    expect(otherSession).not.toBe(sessionId);
  });

  it('[TU3] what a child session is told is no echo of the prompt, also when it has the same words', async () => {
    const stage = await setStage(testScope());
    const { life, client, agentSessionId } = stage;
    const turn = await stage.turn('go');
    const told = { sessionUpdate: 'user_message_chunk', content: { type: 'text', text: 'go' } };
    life.update('child-1', told);
    life.update(agentSessionId, told);
    life.say(agentSessionId, 'done');
    await turn.end();
    expect(kindsOf(client.updates('child-1'))).toEqual(['user_message_chunk:go']);
    const late = await stage.join();
    await late.load(stage.sessionId);
    expect(kindsOf(late.updates('child-1'))).toEqual(['user_message_chunk:go']);
    expect(kindsOf(late.updates(stage.sessionId))).toEqual(['user_message_chunk:go', 'agent_message_chunk:done']);
  });

  it('[EV10] [TU10] while nobody is attached: recorded, and the turn runs to its end', async () => {
    const stage = await setStage(testScope());
    const { life, client, sessionId, agentSessionId, sidecar } = stage;
    const turn = await stage.turn();
    turn.answer.catch(() => undefined);
    life.say(agentSessionId, 'seen ');
    await client.until('the first text', () => client.agentText() === 'seen ');
    const cursor = client.cursors.get(sessionId);
    client.cut();
    for (let i = 0; i < 50; i++) {
      life.say(agentSessionId, `unseen${i} `);
      if (i % 10 === 9)
        life.update(agentSessionId, {
          sessionUpdate: 'tool_call',
          toolCallId: `t${i}`,
          title: 'T',
          status: 'completed',
        });
    }
    life.reply(turn.request, { stopReason: 'end_turn' });
    const again = await sidecar.unix();
    await again.initialize({ sidecar: true });
    const resumed = await again.resume(sessionId, cursor);
    expect(at(resumed, '_meta', 'sidecar', 'mode')).toBe('tail');
    const unseen = Array.from({ length: 50 }, (_, i) => `unseen${i} `).join('');
    await again.until('the last call', ({ text }) => text.includes('"t49"'));
    expect(again.agentText(sessionId)).toBe(unseen);
    expect(kindsOf(again.updates(sessionId)).filter((kind) => kind.startsWith('tool_call'))).toEqual(
      [9, 19, 29, 39, 49].map((i) => `tool_call:t${i}`),
    );
    const end = await again.until('the end of the turn', ({ message }) => at(message, 'params', 'state') === 'ended');
    expect(at(end.message, 'params', 'stopReason')).toBe('end_turn');
    expect(life.received.some(({ message }) => message.method === 'session/cancel')).toBe(false);
  });

  it('the answer to a prompt never overtakes the updates before it', async () => {
    const stage = await setStage(testScope());
    const { life, client, sessionId, agentSessionId } = stage;
    const watcher = await stage.join();
    await watcher.load(sessionId);
    for (let n = 0; n < 5; n++) {
      const turn = await stage.turn(`turn ${n}`);
      for (let i = 0; i < 40; i++) {
        life.say(agentSessionId, `${n}.${i} `);
        life.update(agentSessionId, {
          sessionUpdate: 'tool_call',
          toolCallId: `${n}.${i}`,
          title: 'T',
          status: 'completed',
        });
      }
      const answer = await turn.end();
      const at = client.received.indexOf(answer);
      const kinds = kindsOf(client.updates().filter((entry) => client.received.indexOf(entry) < at));
      const expected = Array.from({ length: 40 }, (_, i) => [
        `agent_message_chunk:${n}.${i} `,
        `tool_call:${n}.${i}`,
      ]).flat();
      expect(kinds.slice(-80)).toEqual(expected);
    }
  });

  it("a tool call's pending progress never reaches who attaches before the call itself", async () => {
    const stage = await setStage(testScope());
    const { life, sessionId, agentSessionId } = stage;
    const turn = await stage.turn();
    for (let i = 0; i < 30; i++) {
      const late = await stage.join(i % 2 === 0);
      const toolCallId = `call-${i}`;
      life.update(agentSessionId, { sessionUpdate: 'tool_call', toolCallId, title: 'T', status: 'in_progress' });
      life.update(agentSessionId, { sessionUpdate: 'tool_call_update', toolCallId, title: 'T, half done' });
      // A little later each time, so that the call is somewhere between the agent's pipe and the disk.
      for (let spin = 0; spin < i % 6; spin++) await new Promise((resolve) => setImmediate(resolve));
      await late.load(sessionId);
      await late.until('the progress', ({ text }) => text.includes('half done') && text.includes(`"${toolCallId}"`));
      const mine = late.updates().filter(({ text }) => text.includes(`"${toolCallId}"`));
      const [first, ...rest] = kindsOf(mine);
      expect([first, ...new Set(rest)], `attempt ${i}`).toEqual([
        `tool_call:${toolCallId}`,
        `tool_call_update:${toolCallId}`,
      ]);
      late.cut();
    }
    await turn.end();
  });
});

describe('requests', () => {
  it('the same id is in use in both directions', async () => {
    const stage = await setStage(testScope());
    const { life, client, sessionId, agentSessionId } = stage;
    const answer = client.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'x' }] }, 0);
    const prompt = await life.saw('session/prompt');
    const id = prompt.message.id as number;
    life.send({ id, method: 'fs/read_text_file', params: { sessionId: agentSessionId, path: '/tmp/x' } });
    const read = await client.saw('fs/read_text_file');
    expect(at(read.message, 'params', 'sessionId')).toBe(sessionId);
    client.sendMessage({ id: read.message.id, result: { content: 'file' } });
    expect((await life.answerTo(id)).message.result).toEqual({ content: 'file' });
    life.reply(prompt.message, { stopReason: 'end_turn' });
    expect(at((await answer).message, 'result', 'stopReason')).toBe('end_turn');
  });

  it('$/cancel_request of the client reaches the agent with the id that the agent knows', async () => {
    const stage = await setStage(testScope());
    const { life, client } = stage;
    const first = client.ask('_vendor/slow', { n: 1 }, 'mine');
    const second = client.ask('_vendor/slow', { n: 2 }, 0);
    const asked = await life.saw('_vendor/slow', 0);
    const other = await life.saw('_vendor/slow', 1);
    client.notify('$/cancel_request', { requestId: 'mine' });
    const cancel = await life.saw('$/cancel_request');
    expect(at(cancel.message, 'params', 'requestId')).toBe(asked.message.id);
    life.fail(asked.message, -32800, 'cancelled');
    life.reply(other.message, { fine: true });
    expect((await first).message.error?.code).toBe(-32800);
    expect((await second).message.result).toEqual({ fine: true });
  });

  it('$/cancel_request of the agent reaches the client with the id that the client knows', async () => {
    const stage = await setStage(testScope());
    const { life, client, agentSessionId } = stage;
    const turn = await stage.turn();
    life.send({ id: 'r-1', method: 'fs/read_text_file', params: { sessionId: agentSessionId, path: '/tmp/x' } });
    const read = await client.saw('fs/read_text_file');
    life.send({ method: '$/cancel_request', params: { requestId: 'r-1' } });
    const cancel = await client.saw('$/cancel_request');
    expect(at(cancel.message, 'params', 'requestId')).toBe(read.message.id);
    client.sendMessage({ id: read.message.id, error: { code: -32800, message: 'cancelled' } });
    await turn.end();
  });

  it('$/cancel_request of a prompt cancels its turn', async () => {
    const stage = await setStage(testScope());
    const { life, client, sessionId, agentSessionId } = stage;
    const answer = client.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'x' }] }, 'p');
    const prompt = await life.saw('session/prompt');
    client.notify('$/cancel_request', { requestId: 'p' });
    const cancel = await life.until('a cancel', () =>
      life.received.find(({ message }) => message.method === 'session/cancel' || message.method === '$/cancel_request'),
    );
    if (cancel.message.method === 'session/cancel')
      expect(at(cancel.message, 'params', 'sessionId')).toBe(agentSessionId);
    else expect(at(cancel.message, 'params', 'requestId')).toBe(prompt.message.id);
    life.reply(prompt.message, { stopReason: 'cancelled' });
    const { message } = await answer;
    expect(at(message, 'result', 'stopReason') ?? message.error?.code).toSatisfy(
      (v) => v === 'cancelled' || v === -32800,
    );
  });

  it('session/cancel reaches the agent and ends the turn as the agent says', async () => {
    const stage = await setStage(testScope());
    const { life, client, sessionId, agentSessionId } = stage;
    const turn = await stage.turn();
    client.notify('session/cancel', { sessionId });
    const cancel = await life.saw('session/cancel');
    expect(at(cancel.message, 'params', 'sessionId')).toBe(agentSessionId);
    life.say(agentSessionId, 'last words');
    const answer = await turn.end({ stopReason: 'cancelled' });
    expect(at(answer.message, 'result', 'stopReason')).toBe('cancelled');
    expect(client.agentText()).toBe('last words');
  });

  it('[EV13] modes and config options pass, and a later client sees what is set, once', async () => {
    const modes = {
      currentModeId: 'ask',
      availableModes: [
        { id: 'ask', name: 'Ask' },
        { id: 'code', name: 'Code' },
      ],
    };
    const stage = await setStage(testScope(), {
      handlers: {
        'session/new': () => ({ sessionId: 'agent-session-1', modes }),
        'session/set_mode': ({ params }, process) => {
          const modeId = params?.['modeId'];
          // To this one it echoes.
          if (modeId === 'ask')
            process.update('agent-session-1', { sessionUpdate: 'current_mode_update', currentModeId: modeId });
          return {};
        },
        'session/set_config_option': () => ({
          configOptions: [{ id: 'm', name: 'M', type: 'select', currentValue: 'b', options: [] }],
        }),
      },
    });
    const { life, client, sessionId, agentSessionId } = stage;
    const watcher = await stage.join();
    await watcher.load(sessionId);
    await client.request('session/set_mode', { sessionId, modeId: 'code' });
    expect((await life.saw('session/set_mode')).message.params).toEqual({ sessionId: agentSessionId, modeId: 'code' });
    await watcher.until('the new mode', ({ message }) => at(message, 'params', 'update', 'currentModeId') === 'code');
    const set = await client.request('session/set_config_option', { sessionId, configId: 'm', value: 'b' });
    expect(at(set, 'configOptions', 0, 'currentValue')).toBe('b');
    await watcher.until(
      'the new option',
      ({ message }) => at(message, 'params', 'update', 'configOptions', 0, 'currentValue') === 'b',
    );
    await client.request('session/set_mode', { sessionId, modeId: 'ask' });
    const late = await stage.join();
    expect(at(await late.load(sessionId), 'modes', 'currentModeId')).toBe('ask');
    await late.until('the last of it', ({ message }) => at(message, 'params', 'update', 'currentModeId') === 'ask');
    await (await stage.turn()).end();
    const said = late.updates().flatMap(({ message }) => {
      const update = at(message, 'params', 'update');
      return at(update, 'currentModeId') ?? at(update, 'configOptions', 0, 'id') ?? [];
    });
    expect(said).toEqual(['code', 'm', 'ask']);
  });
});

describe("the agent's requests", () => {
  it('permission, elicitation, fs and terminal reach a capable client, and its answer the agent', async () => {
    const stage = await setStage(testScope());
    const { life, client, sessionId, agentSessionId } = stage;
    client.handlers.set('session/request_permission', () => ({ outcome: { outcome: 'selected', optionId: 'yes' } }));
    client.handlers.set('elicitation/create', () => ({ action: 'accept', content: { name: 'n' } }));
    client.handlers.set('fs/read_text_file', () => ({ content: 'text' }));
    client.handlers.set('fs/write_text_file', () => ({}));
    client.handlers.set('terminal/create', () => ({ terminalId: 'term-1' }));
    client.handlers.set('terminal/output', () => ({ output: 'out', truncated: false }));
    client.handlers.set('terminal/wait_for_exit', () => ({ exitCode: 0 }));
    client.handlers.set('terminal/release', () => ({}));
    const turn = await stage.turn();
    const ask = async (id: number, method: string, params: object): Promise<unknown> => {
      life.send({ id, method, params: { sessionId: agentSessionId, ...params } });
      const { message } = await life.answerTo(id);
      return message.result ?? message.error;
    };
    const options = [
      { optionId: 'yes', name: 'Yes', kind: 'allow_once' },
      { optionId: 'no', name: 'No', kind: 'reject_once' },
    ];
    life.update(agentSessionId, { sessionUpdate: 'tool_call', toolCallId: 'c', title: 'C', status: 'pending' });
    expect(await ask(0, 'session/request_permission', { toolCall: { toolCallId: 'c', title: 'C' }, options })).toEqual({
      outcome: { outcome: 'selected', optionId: 'yes' },
    });
    const schema = { type: 'object', properties: { name: { type: 'string' } } };
    expect(await ask(1, 'elicitation/create', { mode: 'form', message: 'Name?', requestedSchema: schema })).toEqual({
      action: 'accept',
      content: { name: 'n' },
    });
    expect(await ask(2, 'fs/read_text_file', { path: '/tmp/a' })).toEqual({ content: 'text' });
    expect(await ask(3, 'fs/write_text_file', { path: '/tmp/a', content: 'b' })).toEqual({});
    expect(await ask(4, 'terminal/create', { command: 'ls' })).toEqual({ terminalId: 'term-1' });
    expect(await ask(5, 'terminal/output', { terminalId: 'term-1' })).toMatchObject({ output: 'out' });
    expect(await ask(6, 'terminal/wait_for_exit', { terminalId: 'term-1' })).toEqual({ exitCode: 0 });
    expect(await ask(7, 'terminal/release', { terminalId: 'term-1' })).toEqual({});
    for (const { message } of client.received) {
      if (message.method && message.id !== undefined) expect(at(message, 'params', 'sessionId')).toBe(sessionId);
    }
    await turn.end();
  });

  it('a request for a file goes to one client that has the capability, else it is refused at once', async () => {
    const stage = await setStage(testScope(), { clientCapabilities: {} });
    const { life, agentSessionId, sessionId, sidecar } = stage;
    const turn = await stage.turn();
    life.send({ id: 1, method: 'fs/read_text_file', params: { sessionId: agentSessionId, path: '/tmp/a' } });
    expect((await life.answerTo(1)).message.error).toBeDefined();
    const capable = await sidecar.unix();
    await capable.initialize();
    await capable.load(sessionId);
    capable.handlers.set('fs/read_text_file', () => ({ content: 'mine' }));
    life.send({ id: 2, method: 'fs/read_text_file', params: { sessionId: agentSessionId, path: '/tmp/a' } });
    expect((await life.answerTo(2)).message.result).toEqual({ content: 'mine' });
    await turn.end();
  });

  it('[EV12] a permission for an unknown tool call is preceded by that call, live and in replays', async () => {
    const stage = await setStage(testScope());
    const { life, client, sessionId, agentSessionId } = stage;
    client.handlers.set('session/request_permission', () => ({ outcome: { outcome: 'selected', optionId: 'yes' } }));
    const turn = await stage.turn();
    life.send({
      id: 0,
      method: 'session/request_permission',
      params: {
        sessionId: agentSessionId,
        toolCall: { toolCallId: 'unseen', title: 'Write', kind: 'edit' },
        options: [{ optionId: 'yes', name: 'Yes', kind: 'allow_once' }],
      },
    });
    await life.answerTo(0);
    await turn.end();
    const asked = client.received.findIndex(({ message }) => message.method === 'session/request_permission');
    const call = client.received.findIndex(({ message }) => at(message, 'params', 'update', 'toolCallId') === 'unseen');
    expect(call).toBeGreaterThan(-1);
    expect(call).toBeLessThan(asked);
    expect(at(client.received[call]?.message, 'params', 'update')).toMatchObject({
      sessionUpdate: 'tool_call',
      title: 'Write',
    });
    const late = await stage.join();
    await late.load(sessionId);
    expect(kindsOf(late.updates())).toContain('tool_call:unseen');
  });
});

describe('an agent without loadSession', () => {
  it('[RP8] [SS1] still gives its clients load, resume and list for the sessions that the log knows', async () => {
    const stage = await setStage(testScope(), { capabilities: {} });
    const { life, client, sessionId, agentSessionId } = stage;
    const turn = await stage.turn('hello');
    life.say(agentSessionId, 'hi');
    await turn.end();
    await client.newSession('/tmp/elsewhere');
    const fresh = await stage.sidecar.unix();
    const capabilities = at(await fresh.initialize(), 'agentCapabilities');
    expect(capabilities).toMatchObject({ loadSession: true, sessionCapabilities: { list: {}, resume: {} } });
    const listed = await fresh.request('session/list', { cwd: '/tmp' });
    expect((at(listed, 'sessions') as object[]).map((entry) => textAt(entry, 'sessionId'))).toEqual([sessionId]);
    const all = at(await fresh.request('session/list', {}), 'sessions') as object[];
    expect(all.map((entry) => textAt(entry, 'cwd'))).toEqual(['/tmp/elsewhere', '/tmp']);
    await fresh.load(sessionId);
    expect(kindsOf(fresh.updates())).toEqual(['user_message_chunk:hello', 'agent_message_chunk:hi']);
    expect(life.received.some(({ message }) => /session\/(load|resume)/.test(message.method ?? ''))).toBe(false);
  });
});
