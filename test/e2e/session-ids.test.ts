/** A session that lives in another agent session than the one it was made with: each side knows its own id. */
import { expect, it } from 'vitest';
import { at, textAt } from '../support/json.ts';
import { testScope } from '../support/scope.ts';
import type { AgentLife } from '../support/scripted-agent.ts';
import { type Stage, setStage } from '../support/stage.ts';
import { waitFor } from '../support/wait-for.ts';

/** The session as the agent's next process knows it: one that cannot resume gets a new one. */
async function movedOn({
  agent,
  client,
  life,
  sessionId,
}: Stage): Promise<{ life: AgentLife; agentSessionId: string }> {
  life.exit(0);
  await life.until('its end', ({ closed }) => closed);
  const prompt = { sessionId, prompt: [{ type: 'text', text: 'go on' }] };
  agent.handlers.set('session/prompt', () => ({ stopReason: 'end_turn' }));
  // One that meets the dying process fails with it.
  await waitFor(
    'the next process',
    async () => (await client.ask('session/prompt', prompt)).message.error === undefined,
  );
  agent.handlers.delete('session/prompt');
  const next = await agent.life(1);
  const { message } = await next.saw('session/prompt');
  return { life: next, agentSessionId: textAt(message, 'params', 'sessionId') };
}

it('[ID4] [ID5] whatever names a session carries the id that the other side knows', async () => {
  const stage = await setStage(testScope());
  const { client, sessionId } = stage;
  const { life, agentSessionId } = await movedOn(stage);
  expect(agentSessionId).not.toBe(sessionId);
  const other = await stage.join();
  const _meta = { v: 1 };
  const ours = { ..._meta, sidecar: { requestKey: 'k' } };
  const answer = client.ask('_vendor/ask', { sessionId, x: 1, _meta: ours });
  const asked = await life.saw('_vendor/ask');
  expect(asked.message.params).toEqual({ sessionId: agentSessionId, x: 1, _meta });
  life.reply(asked.message, { y: 2 });
  expect((await answer).message.result).toEqual({ y: 2 });
  const prompt = client.ask('session/prompt', { sessionId, prompt: [], _meta: ours });
  const prompted = await life.saw('session/prompt', 1);
  expect(prompted.message.params).toEqual({ sessionId: agentSessionId, prompt: [], _meta });
  const from = client.received.length;
  life.say(agentSessionId, 'of the second');
  await client.until('the text', () => client.agentText(sessionId).endsWith('of the second'), { from });
  life.send({ id: 'read', method: 'fs/read_text_file', params: { sessionId: agentSessionId, path: '/x' } });
  expect((await client.saw('fs/read_text_file')).message.params).toEqual({ sessionId, path: '/x' });
  client.notify('session/cancel', { sessionId, _meta: ours });
  expect(at((await life.saw('session/cancel')).message, 'params', 'sessionId')).toBe(agentSessionId);
  life.reply(prompted.message, { stopReason: 'cancelled' });
  await prompt;
  client.notify('_vendor/tell', { sessionId, z: 3, _meta: { sidecar: {} } });
  expect((await life.saw('_vendor/tell')).message.params).toEqual({ sessionId: agentSessionId, z: 3 });
  life.send({ method: '_vendor/news', params: { sessionId: agentSessionId, n: 1 } });
  expect(at((await client.saw('_vendor/news')).message, 'params', 'sessionId')).toBe(sessionId);
  life.send({ method: 'vendor/without_underscore', params: { all: true } });
  await client.saw('vendor/without_underscore');
  await other.saw('vendor/without_underscore');
  expect(other.received.some(({ message }) => message.method === '_vendor/news')).toBe(false);
});

it('[ID4] an agent that gives every session one id: each client sees the turns of its own session', async () => {
  const stage = await setStage(testScope(), { handlers: { 'session/new': () => ({ sessionId: 'the-one' }) } });
  const { client, life, sessionId } = stage;
  const second = await stage.join();
  const other = await second.newSession();
  expect(other).not.toBe(sessionId);
  const said: Record<string, string> = { [sessionId]: '', [other]: '' };
  for (let n = 0; n < 6; n++) {
    const [who, id] = n % 2 === 0 ? ([client, sessionId] as const) : ([second, other] as const);
    const answer = who.prompt(id, 'go');
    const { message } = await life.saw('session/prompt', n);
    // Several chunks: what the fast path has learnt of one session is not for the other.
    for (const text of [`${n}a `, `${n}b `, `${n}c `]) life.say('the-one', text);
    said[id] += `${n}a ${n}b ${n}c `;
    life.reply(message, { stopReason: 'end_turn' });
    await answer;
  }
  expect([client.agentText(sessionId), second.agentText(other)]).toEqual([said[sessionId], said[other]]);
});
