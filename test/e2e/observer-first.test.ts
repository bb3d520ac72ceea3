/** An observer that comes first: it sees what there is, and leaves the agent to the controller that comes after it. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { at } from '../support/json.ts';
import { RawClient } from '../support/raw-client.ts';
import { type Scope, testScope } from '../support/scope.ts';
import { ScriptedAgent } from '../support/scripted-agent.ts';
import { Sidecar } from '../support/sidecar.ts';
import { tempDir } from '../support/temp-dir.ts';

const OWNER = 'owner-token-0123456789abcdef';
const WATCHER = 'watcher-token-0123456789abcdef';
const OBSERVER = { sidecar: { role: 'observer' } };

interface House {
  readonly agent: ScriptedAgent;
  readonly sidecar: Sidecar;
  /** A connection with a token, nothing said yet. */
  readonly as: (token: string) => Promise<RawClient>;
}

async function openHouse(scope: Scope): Promise<House> {
  const agent = await ScriptedAgent.listen(scope);
  agent.handlers.set('initialize', () => ({
    protocolVersion: 1,
    agentCapabilities: { loadSession: true, sessionCapabilities: { list: {} } },
    authMethods: [{ id: 'login', name: 'Log in' }],
  }));
  agent.handlers.set('session/list', () => ({ sessions: [{ sessionId: 'only-the-agent-knows', cwd: '/tmp' }] }));
  const tokens = join(tempDir(scope), 'tokens');
  writeFileSync(tokens, `${OWNER} controller owner\n${WATCHER} observer screen\n`, { mode: 0o600 });
  const sidecar = await Sidecar.start(scope, { agent: agent.command, args: ['--token-file', tokens] });
  await agent.life();
  const as = (token: string): Promise<RawClient> =>
    sidecar.webSocket(scope, { headers: { authorization: `Bearer ${token}` } });
  return { agent, sidecar, as };
}

const methodsOf = (agent: ScriptedAgent): unknown[] =>
  agent.lives.flatMap(({ received }) => received.map(({ message }) => message.method));

const ways: readonly [string, string, object][] = [
  ['by its token', WATCHER, {}],
  ['by its own wish', OWNER, OBSERVER],
];

describe('an observer that comes before any controller', () => {
  for (const [how, token, wish] of ways) {
    it(`[IN4] ${how}, gets what the sidecar serves, and the agent is initialised with the controller after it`, async () => {
      const { agent, as } = await openHouse(testScope());
      const observer = await as(token);
      const answer = await observer.initialize({ capabilities: { fs: { readTextFile: true } }, ...wish });
      expect(answer).toMatchObject({
        protocolVersion: 1,
        authMethods: [],
        agentCapabilities: {
          loadSession: true,
          sessionCapabilities: { list: {}, resume: {}, close: {}, delete: {}, fork: {} },
          _meta: { sidecar: { version: 1, eventId: true } },
        },
      });
      expect(await observer.request('session/list')).toEqual({ sessions: [] });
      // Whatever it asks of the agent, it does not initialise it.
      const asked = await observer.ask('auth/status');
      expect(at(asked.message, 'error', 'data', 'kind')).toBe('agent_unavailable');
      expect(methodsOf(agent)).toEqual([]);
      const controller = await as(OWNER);
      const full = await controller.initialize({ capabilities: { terminal: true } });
      expect(full).toMatchObject({ authMethods: [{ id: 'login' }] });
      const { message } = await (await agent.life()).saw('initialize');
      expect(at(message, 'params', 'clientCapabilities')).toEqual({ terminal: true });
      // Now it sees what the agent has, too.
      expect(await observer.request('session/list')).toEqual({
        sessions: [{ sessionId: 'only-the-agent-knows', cwd: '/tmp' }],
      });
    });
  }

  it('[IN4] in a later life gets the stored answer, and the agent is still left to a controller', async () => {
    const { agent, sidecar, as } = await openHouse(testScope());
    await (await as(OWNER)).initialize();
    await sidecar.restart();
    const life = await agent.life(1);
    const observer = await as(WATCHER);
    expect(await observer.initialize()).toMatchObject({ authMethods: [{ id: 'login' }] });
    expect(await observer.request('session/list')).toEqual({ sessions: [] });
    expect(life.received).toEqual([]);
    const controller = await as(OWNER);
    await controller.initialize({ capabilities: { terminal: true } });
    const { message } = await life.saw('initialize');
    expect(at(message, 'params', 'clientCapabilities')).toEqual({ terminal: true });
  });
});
