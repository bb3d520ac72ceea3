/** Sessions that are deleted while the agent cannot hear of it. */
import { describe, expect, it } from 'vitest';
import { at } from '../support/json.ts';
import { scrape } from '../support/scrape.ts';
import { testScope } from '../support/scope.ts';
import type { AgentLife } from '../support/scripted-agent.ts';
import { runCommand } from '../support/sidecar.ts';
import { setStage, type Stage, type StageOptions } from '../support/stage.ts';
import { waitFor } from '../support/wait-for.ts';

const CAN = { sessionCapabilities: { delete: {} } };

async function stageOf(options: StageOptions = {}): Promise<Stage> {
  const stage = await setStage(testScope(), {
    capabilities: CAN,
    ...options,
    handlers: {
      'session/delete': () => ({}),
      'session/prompt': () => ({ stopReason: 'end_turn' }),
      ...options.handlers,
    },
  });
  await stage.client.prompt(stage.sessionId, 'asked');
  return stage;
}

/** The process of the agent ends, and the sidecar knows. */
async function agentEnds({ agent, sidecar }: Stage): Promise<void> {
  agent.lives.at(-1)?.exit(1);
  await agentIsGone(sidecar.wsUrl);
}

async function agentIsGone(wsUrl: string): Promise<void> {
  await waitFor('the agent to be gone', async () => {
    const { samples } = await scrape(wsUrl);
    return samples.get('acp_sidecar_agent_up') === 0;
  });
}

/** The ids that the agent was told of, in each of its lives. */
const toldOf = ({ agent }: Stage): unknown[][] =>
  agent.lives.map(({ received }) =>
    received
      .filter(({ message }) => message.method === 'session/delete')
      .map(({ message }) => at(message, 'params', 'sessionId')),
  );

/** Whether the store still says of a deletion that the agent has not answered. */
async function isUntold({ sidecar }: Stage): Promise<boolean> {
  const { openLmdbEventLogReadOnly } = await import('../../storage/lmdb-event-log.ts');
  const log = await openLmdbEventLogReadOnly(sidecar.store);
  const found = [...log.rows()].some(({ untold }) => untold !== undefined);
  await log.close();
  return found;
}

const noneUntold = (stage: Stage): Promise<unknown> =>
  waitFor('the deletion to be noted as told', async () => !(await isUntold(stage)));

describe('a deletion while the agent is down', () => {
  it('[SS6] is told to its next life once that is initialised, and to no later one', async () => {
    const stage = await stageOf();
    const { client, sessionId, agentSessionId, agent } = stage;
    await agentEnds(stage);
    await client.request('session/delete', { sessionId });
    await client.newSession();
    const second = await agent.life(1);
    await second.saw('session/delete');
    expect(second.received[0]?.message.method).toBe('initialize');
    await noneUntold(stage);
    await agentEnds(stage);
    await client.newSession();
    expect(toldOf(stage)).toEqual([[], [agentSessionId], []]);
  });

  it('[SS6] is told after kill -9 of the sidecar, and after the command line did it without one', async () => {
    const stage = await stageOf();
    const { client, sessionId, agent, sidecar } = stage;
    const other = await client.newSession();
    await client.prompt(other, 'asked');
    await agentEnds(stage);
    await client.request('session/delete', { sessionId });
    await sidecar.kill();
    expect((await runCommand(['delete', other, '--store', sidecar.store])).code).toBe(0);
    await sidecar.start();
    const life = await agent.life(1);
    // Not before a controller has come.
    expect(life.received).toEqual([]);
    await (await sidecar.unix()).initialize();
    await life.saw('session/delete', 1);
    expect(toldOf(stage)).toEqual([[], ['agent-session-1', 'agent-session-2']]);
    await noneUntold(stage);
  });

  it('[SS6] before any controller has come, by the command line, waits for one', async () => {
    const stage = await stageOf();
    const { sessionId, agentSessionId, agent, sidecar } = stage;
    await sidecar.restart();
    const life = await agent.life(1);
    expect((await runCommand(['delete', sessionId, '--store', sidecar.store])).code).toBe(0);
    expect(life.received).toEqual([]);
    await (await sidecar.unix()).initialize();
    const told = await life.saw('session/delete');
    expect(at(told.message, 'params', 'sessionId')).toBe(agentSessionId);
  });

  it('[SS6] that the agent answers with an error is told no more', async () => {
    const stage = await stageOf({
      handlers: {
        'session/delete': (request: object, life: AgentLife) => life.fail(request, -32602, 'no such session'),
      },
    });
    const { client, sessionId } = stage;
    await client.request('session/delete', { sessionId });
    await noneUntold(stage);
    await agentEnds(stage);
    await client.newSession();
    expect(toldOf(stage)).toEqual([['agent-session-1'], []]);
  });

  it('[SS6] of which the agent dies each time is given up after five lives', async () => {
    const stage = await stageOf({
      handlers: { 'session/delete': (_: object, life: AgentLife) => life.exit(1) },
    });
    const { client, sessionId, sidecar } = stage;
    await client.request('session/delete', { sessionId });
    await agentIsGone(sidecar.wsUrl);
    for (let life = 1; life <= 7; life++) {
      await client.ask('session/new', { cwd: '/tmp', mcpServers: [] });
      if (life <= 5) await agentIsGone(sidecar.wsUrl);
      else await agentEnds(stage);
    }
    expect(toldOf(stage).map(({ length }) => length)).toEqual([1, 1, 1, 1, 1, 1, 0, 0]);
    expect(await isUntold(stage)).toBe(false);
  });

  it('[SS6] is not told to an agent that cannot delete, nor of an id that another session has now', async () => {
    const stage = await stageOf({ handlers: { 'session/new': () => ({ sessionId: 'agent-session-1' }) } });
    const { client, sessionId, agent } = stage;
    await agentEnds(stage);
    await client.request('session/delete', { sessionId });
    // Its next life counts from 1 again, and the new session gets there first.
    agent.handlers.set('initialize', () => ({ protocolVersion: 1, agentCapabilities: {} }));
    const again = await client.newSession();
    await client.prompt(again, 'asked');
    expect(await isUntold(stage)).toBe(true);
    await agentEnds(stage);
    agent.handlers.set('initialize', () => ({ protocolVersion: 1, agentCapabilities: CAN }));
    await client.prompt(again, 'more');
    await noneUntold(stage);
    expect(toldOf(stage).flat()).toEqual([]);
  });

  it('[SS6] leaves no mark where the agent is known not to delete', async () => {
    const stage = await stageOf({ capabilities: {} });
    await stage.client.request('session/delete', { sessionId: stage.sessionId });
    expect(await isUntold(stage)).toBe(false);
  });
});
