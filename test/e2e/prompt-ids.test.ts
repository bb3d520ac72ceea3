/** `promptId`: a prompt that is sent again does not run again, on whatever connection and in whatever life of the sidecar. */
import { expect, it } from 'vitest';
import { at, type Received } from '../support/json.ts';
import { testScope } from '../support/scope.ts';
import { setStage } from '../support/stage.ts';

const codeOf = ({ message }: Received): unknown => at(message.error, 'data', 'code');

it('[TU7] every request for it is answered, those of the same connection too, and each can be cancelled', async () => {
  const { client, life, sessionId } = await setStage(testScope());
  const ask = (promptId: string, id: string): Promise<Received> => {
    const prompt = [{ type: 'text', text: promptId }];
    return client.ask('session/prompt', { sessionId, prompt, _meta: { sidecar: { promptId } } }, id);
  };
  const asked = ['a', 'b', 'c'].map((id) => ask('p1', id));
  life.reply((await life.saw('session/prompt')).message, { stopReason: 'end_turn' });
  const [first, ...others] = (await Promise.all(asked)).map(({ message }) => message.result);
  expect(at(first, 'stopReason')).toBe('end_turn');
  expect(others).toEqual([first, first]);

  const cancelled = [ask('p2', 'd'), ask('p2', 'e')];
  const running = await life.saw('session/prompt', 1);
  client.notify('$/cancel_request', { requestId: 'd' });
  await life.saw('session/cancel');
  life.reply(running.message, { stopReason: 'cancelled' });
  const ends = (await Promise.all(cancelled)).map(({ message }) => at(message.result, 'stopReason'));
  expect(ends).toEqual(['cancelled', 'cancelled']);
});

it('[TU7] [TU8] what it says counts, not how it is written; with other content it is refused', async () => {
  const { client, life, sessionId } = await setStage(testScope());
  const ask = (id: string, block: object): Promise<Received> => {
    const params = { sessionId, prompt: [block], _meta: { sidecar: { promptId: 'p1' } } };
    return client.ask('session/prompt', params, id);
  };
  const first = ask('a', { type: 'text', text: 'one', _meta: { k: [1, { b: 2, a: 1 }] } });
  const rearranged = ask('b', { _meta: { k: [1, { a: 1, b: 2 }] }, text: 'one', type: 'text' });
  const other = await ask('c', { type: 'text', text: 'one', _meta: { k: [{ b: 2, a: 1 }, 1] } });
  expect(other.message.error).toMatchObject({ code: -32602, message: expect.stringContaining('another prompt') });
  life.reply((await life.saw('session/prompt')).message, { stopReason: 'end_turn' });
  expect((await rearranged).message.result).toEqual((await first).message.result);
  expect(at((await first).message.result, 'stopReason')).toBe('end_turn');
});

it('[TU7] [RE2] one that ended interrupted keeps giving that after a kill -9; a new one runs', async () => {
  const stage = await setStage(testScope(), { optIn: true });
  const { client, sidecar, sessionId, agent } = stage;
  const prompt = (promptId: string): object => ({
    sessionId,
    prompt: [{ type: 'text', text: promptId }],
    _meta: { sidecar: { promptId } },
  });
  for (const id of ['runs', 'waits']) void client.ask('session/prompt', prompt(id)).catch(() => undefined);
  await stage.life.saw('session/prompt');
  await client.until('both to be queued', ({ message }) => at(message, 'params', 'promptId') === 'waits');
  agent.handlers.set('session/prompt', () => ({ stopReason: 'end_turn' }));
  await sidecar.restart();
  const back = await stage.join();
  await back.load(sessionId);
  for (let again = 0; again < 2; again++) {
    expect(codeOf(await back.ask('session/prompt', prompt('runs')))).toBe('PROMPT_OUTCOME_UNKNOWN');
    expect(codeOf(await back.ask('session/prompt', prompt('waits')))).toBe('PROMPT_NOT_SENT');
  }
  expect(at((await back.ask('session/prompt', prompt('new'))).message.result, 'stopReason')).toBe('end_turn');
});
