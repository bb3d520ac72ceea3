/** What is delivered live and never written keeps its place among what is. */
import { expect, it } from 'vitest';
import { at, eventIdOf } from '../support/json.ts';
import { testScope } from '../support/scope.ts';
import { kindsOf, setStage } from '../support/stage.ts';

it('[RN3] [TR6] [TR7] has the position of the text before it, ends no run, and is in no log', async () => {
  const stage = await setStage(testScope());
  const { life, client, sessionId, agentSessionId } = stage;
  const turn = await stage.turn();
  const mode = { sessionUpdate: 'current_mode_update', currentModeId: 'ask' };
  life.update(agentSessionId, { sessionUpdate: 'tool_call', toolCallId: 't', title: 'T', status: 'in_progress' });
  life.update(agentSessionId, mode);
  await client.until('the mode', () => kindsOf(client.updates()).includes('current_mode_update'));
  const from = client.received.length;
  life.say(agentSessionId, 'one ');
  life.update(agentSessionId, { sessionUpdate: 'notice', noticeId: 'n', message: 'slow' });
  life.update(agentSessionId, { sessionUpdate: 'tool_call_update', toolCallId: 't', rawOutput: 'half' });
  life.update(agentSessionId, mode);
  life.send({ method: '_vendor/news', params: { sessionId: agentSessionId, n: 1 } });
  life.say(agentSessionId, 'two');
  await client.until('the text', () => client.agentText(sessionId) === 'one two');
  const live = client.received.slice(from);
  expect(live.map(({ message }) => at(message, 'params', 'update', 'sessionUpdate') ?? message.method)).toEqual([
    'agent_message_chunk',
    'notice',
    'tool_call_update',
    'current_mode_update',
    '_vendor/news',
    'agent_message_chunk',
  ]);
  const ids = live.map(({ message }) => eventIdOf(message));
  expect(ids.slice(1, 4)).toEqual([ids[0], ids[0], ids[0]]);
  expect(ids[5]).not.toBe(ids[0]);
  await turn.end();
  const late = await stage.join();
  await late.load(sessionId);
  expect(kindsOf(late.updates())).toEqual([
    'user_message_chunk:go',
    'tool_call:t',
    'current_mode_update',
    'agent_message_chunk:one two',
    'tool_call_update:t',
  ]);
  expect(late.received.some(({ message }) => message.method === '_vendor/news')).toBe(false);
});
