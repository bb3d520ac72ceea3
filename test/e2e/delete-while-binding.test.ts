/** A session that is deleted while it is being made to live in a new agent process. */
import { expect, it } from 'vitest';
import { openLmdbEventLogReadOnly } from '../../storage/lmdb-event-log.ts';
import { at } from '../support/json.ts';
import { testScope } from '../support/scope.ts';
import type { AgentLife } from '../support/scripted-agent.ts';
import { setStage, type Stage } from '../support/stage.ts';
import { waitFor } from '../support/wait-for.ts';

async function eventsLeft({ sidecar }: Stage): Promise<number[]> {
  const log = await openLmdbEventLogReadOnly(sidecar.store);
  const nums = log.storedNums();
  await log.close();
  return nums;
}

const idsOf = (life: AgentLife, method: string): unknown[] =>
  life.received
    .filter(({ message }) => message.method === method)
    .map(({ message }) => at(message, 'params', 'sessionId'));

/** Kills the agent, prompts, and gives the new process once it was asked to make or restore the session. */
async function bindInNewLife(stage: Stage, method: string): Promise<AgentLife> {
  const { agent, client, life, sessionId } = stage;
  agent.handlers.delete(method);
  life.exit(1);
  await client.until('its end', ({ text }) => text.includes('"state":"exited"'));
  void client.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'again' }] });
  const next = await agent.life(1);
  await next.saw(method);
  return next;
}

for (const [can, told] of [
  [{ delete: {}, close: {} }, 'session/delete'],
  [{ close: {} }, 'session/close'],
] as const) {
  it(`[SS3] its new agent session is ended by ${told}, and nothing is written`, async () => {
    const stage = await setStage(testScope(), { capabilities: { sessionCapabilities: can }, optIn: true });
    const { client, sessionId } = stage;
    await (await stage.turn('first')).end();
    const next = await bindInNewLife(stage, 'session/new');
    const other = await stage.join();
    expect((await other.ask('session/delete', { sessionId })).message.error).toBeUndefined();
    next.reply((await next.saw('session/new')).message, { sessionId: 'late' });
    await next.until('the end of its session', () => idsOf(next, told).includes('late'));
    // What it says all the same, and what it asks, leads nowhere.
    next.say('late', 'hello');
    next.send({ id: 'q', method: 'session/request_permission', params: { sessionId: 'late', options: [] } });
    expect((await next.answerTo('q')).message.error?.code).toBe(-32002);
    expect((await client.ask('session/load', { sessionId, cwd: '/', mcpServers: [] })).message.error?.code).toBe(
      -32002,
    );
    await waitFor('nothing to be left of it', async () => (await eventsLeft(stage)).length === 0, { intervalMs: 50 });
    await stage.sidecar.stop();
    expect(await eventsLeft(stage)).toEqual([]);
  });
}

it('[SS3] a restore that is answered too late writes nothing, and the agent is told', async () => {
  const capabilities = { sessionCapabilities: { resume: {}, close: {} } };
  const stage = await setStage(testScope(), { capabilities, optIn: true });
  const { sessionId, agentSessionId } = stage;
  await (await stage.turn('first')).end();
  const next = await bindInNewLife(stage, 'session/resume');
  const other = await stage.join();
  expect((await other.ask('session/delete', { sessionId })).message.error).toBeUndefined();
  await next.until('the end of its session', () => idsOf(next, 'session/close').includes(agentSessionId));
  next.reply((await next.saw('session/resume')).message, { modes: { currentModeId: 'm', availableModes: [] } });
  next.send({ id: 'q', method: 'session/request_permission', params: { sessionId: agentSessionId, options: [] } });
  expect((await next.answerTo('q')).message.error?.code).toBe(-32002);
  await other.newSession();
  await stage.sidecar.stop();
  // The new one's only.
  expect(await eventsLeft(stage)).toHaveLength(1);
});

it('[SS3] a session that others took for a child of the deleted one goes on', async () => {
  const stage = await setStage(testScope(), {
    capabilities: { sessionCapabilities: { resume: {} } },
    handlers: { 'session/resume': () => ({}), 'session/prompt': () => ({ stopReason: 'end_turn' }) },
    optIn: true,
  });
  const { agent, client, life, sessionId, agentSessionId } = stage;
  const deleted = await client.newSession();
  const prompt = (to: string): Promise<unknown> =>
    client.request('session/prompt', { sessionId: to, prompt: [{ type: 'text', text: 'go' }] });
  life.exit(1);
  await client.until('its end', ({ text }) => text.includes('"state":"exited"'));
  await prompt(deleted);
  const next = await agent.life(1);
  // It does not live in this process yet: whoever is active gets that.
  next.say(agentSessionId, 'early');
  await client.until('it', ({ text }) => text.includes('early'));
  await prompt(sessionId);
  await client.request('session/delete', { sessionId: deleted });
  next.say(agentSessionId, 'later');
  await client.until('what it says then', () => client.agentText(sessionId).includes('later'));
});
