/** `initialize`: what the agent is told, once, and what every client is answered. */
import { expect, it } from 'vitest';
import { at, type Message } from '../support/json.ts';
import { type Scope, testScope } from '../support/scope.ts';
import { type AgentHandler, ScriptedAgent } from '../support/scripted-agent.ts';
import { Sidecar } from '../support/sidecar.ts';

async function house(
  scope: Scope,
  initialize: AgentHandler,
  args: readonly string[] = [],
): Promise<{ sidecar: Sidecar; told: (n?: number) => Promise<Message[]> }> {
  const agent = await ScriptedAgent.listen(scope);
  agent.handlers.set('initialize', initialize);
  const sidecar = await Sidecar.start(scope, { agent: agent.command, args });
  const told = async (n = 0): Promise<Message[]> => {
    const { received } = await agent.life(n);
    return received.map(({ message }) => message).filter(({ method }) => method === 'initialize');
  };
  return { sidecar, told };
}

it('[IN1] the agent is initialised once, with version 1, and every client is answered with version 1', async () => {
  const { sidecar, told } = await house(testScope(), () => ({ protocolVersion: 1, agentCapabilities: {} }));
  const clients = await Promise.all([sidecar.unix(), sidecar.webSocket(), sidecar.unix()]);
  const answers = clients.map((client, i) =>
    client.request('initialize', { protocolVersion: 3 - i, clientCapabilities: {} }),
  );
  for (const answer of await Promise.all(answers)) expect(at(answer, 'protocolVersion')).toBe(1);
  expect((await told()).map(({ params }) => params?.['protocolVersion'])).toEqual([1]);
  const late = await sidecar.unix();
  expect(at(await late.request('initialize', { protocolVersion: 2 }), 'protocolVersion')).toBe(1);
  await late.newSession();
  expect(await told()).toHaveLength(1);
});

it("[IN2] the response is the agent's own, with what the sidecar serves for it", async () => {
  const own = {
    agentInfo: { name: 'odd', version: '0' },
    authMethods: [{ id: 'key', name: 'Key' }],
    alien: { deep: [1, null] },
    agentCapabilities: {
      loadSession: false,
      promptCapabilities: { image: true },
      sessionCapabilities: { list: { odd: 1 }, alien: {} },
      _meta: { vendor: { x: 1 } },
    },
  };
  const { sidecar } = await house(testScope(), () => ({ protocolVersion: 1, ...own }));
  const client = await sidecar.unix();
  expect(await client.request('initialize', { protocolVersion: 1 })).toEqual({
    protocolVersion: 1,
    ...own,
    agentCapabilities: {
      ...own.agentCapabilities,
      loadSession: true,
      sessionCapabilities: { list: { odd: 1 }, alien: {}, resume: {}, close: {}, delete: {}, fork: {}, attach: {} },
      _meta: { vendor: { x: 1 }, sidecar: { version: 1, eventId: true, approvals: true, attach: true, history: true } },
    },
  });
});

it.each([{}, { clientCapabilities: { terminal: true } }])(
  '--client-capabilities is what the agent is told, whatever the first client says: %j',
  async (said) => {
    const fs = { fs: { readTextFile: true } };
    const args = ['--client-capabilities', JSON.stringify(fs)];
    const { sidecar, told } = await house(testScope(), () => ({ protocolVersion: 1, agentCapabilities: {} }), args);
    const client = await sidecar.unix();
    await client.request('initialize', { protocolVersion: 1, ...said });
    expect((await told()).map(({ params }) => params?.['clientCapabilities'])).toEqual([fs]);
  },
);
