import { mkdirSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { at, textAt } from '../support/json.ts';
import { ScriptedAgent } from '../support/scripted-agent.ts';
import { testScope } from '../support/scope.ts';
import { Sidecar } from '../support/sidecar.ts';
import { setStage } from '../support/stage.ts';
import { waitFor } from '../support/wait-for.ts';

const TEXT = (text: string): object => ({ sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } });

describe('something comes at a bad moment', () => {
  it('[EV11] an announced child streams while the agent thinks about another session/new: its updates do not wait for that', async () => {
    let made = 0;
    const stage = await setStage(testScope(), {
      handlers: { 'session/new': () => (made++ === 0 ? { sessionId: 'agent-session-1' } : undefined) },
      clientCapabilities: { subagents: {} },
    });
    const { client, life, agentSessionId, sessionId } = stage;
    life.update(agentSessionId, { sessionUpdate: 'subagent_update', sessionId: 'child-1' });
    await client.until('the child', ({ message }) => at(message, 'params', 'update', 'sessionId') === 'child-1');
    const other = client.ask('session/new', { cwd: '/tmp', mcpServers: [] });
    const { message } = await life.saw('session/new', 1);
    life.update('child-1', TEXT('from the child'));
    await client.until('its text', () => client.agentText('child-1') === 'from the child');
    life.reply(message, { sessionId: 'agent-session-2' });
    await other;
    const fresh = await stage.join();
    await fresh.load(sessionId);
  });

  it('[CL1] a connection that was replaced is not served any more, whatever was on its way', async () => {
    const stage = await setStage(testScope());
    const { sidecar, sessionId, life } = stage;
    const line = (message: object): string => `${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`;
    const old = connect({ path: sidecar.socketPath, allowHalfOpen: true });
    let answered = '';
    let ended = false;
    old.on('data', (data: Buffer) => {
      answered += String(data);
    });
    old.on('end', () => {
      ended = true;
    });
    const opting = { _meta: { sidecar: { version: 1, clientId: 'editor' } } };
    old.write(line({ id: 0, method: 'initialize', params: { protocolVersion: 1, clientCapabilities: opting } }));
    await waitFor('the old one to be initialised', () => answered.includes('"id":0'));
    const fresh = await stage.join({ clientId: 'editor' });
    await waitFor('the old one to be closed', () => ended);
    const prompt = [{ type: 'text', text: 'too late' }];
    old.write(line({ id: 1, method: 'session/prompt', params: { sessionId, prompt } }));
    const turn = await stage.turn('in time', fresh);
    await turn.end();
    const prompts = life.received.filter(({ message }) => message.method === 'session/prompt');
    expect(prompts.map(({ message }) => textAt(message, 'params', 'prompt', 0, 'text'))).toEqual(['in time']);
    old.destroy();
  });

  it('the answer to initialize cannot be kept for the next start: this one goes on', async () => {
    const scope = testScope();
    const agent = await ScriptedAgent.listen(scope);
    agent.handlers.set('initialize', () => ({ protocolVersion: 1, agentCapabilities: {} }));
    const sidecar = await Sidecar.start(scope, { agent: agent.command });
    mkdirSync(join(sidecar.store, 'agent-initialize.json.new'));
    const client = await sidecar.unix();
    await client.initialize();
    expect(await client.newSession()).not.toBe('');
  });

  it('a message of 17 MB: who loads afterwards gets it, from this process and from the next', async () => {
    const stage = await setStage(testScope());
    const { client, life, agentSessionId, sessionId, sidecar } = stage;
    const turn = await stage.turn();
    const text = 'long '.repeat(3_400_000);
    life.update(agentSessionId, TEXT(text));
    await turn.end();
    expect(client.agentText(sessionId) === text).toBe(true);
    await (await stage.join()).load(sessionId);
    await sidecar.restart();
    const late = await stage.join();
    await late.load(sessionId);
    expect(late.agentText(sessionId) === text).toBe(true);
  });

  it('SIGTERM in a turn: its prompt is answered before the connection is closed', async () => {
    const stage = await setStage(testScope(), { args: ['--drain', '100ms'] });
    const turn = await stage.turn();
    process.kill(stage.sidecar.pid, 'SIGTERM');
    const { message } = await turn.answer;
    expect(at(message, 'error', 'data', 'kind')).toBe('interrupted');
    await stage.client.untilClosed();
  });
});
