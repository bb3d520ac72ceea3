import { expect, it } from 'vitest';
import { testScope } from '../support/scope.ts';
import { setStage } from '../support/stage.ts';

it('a session that is deleted while it is busy: every request is answered, and a late prompt does not keep it', async () => {
  const stage = await setStage(testScope());
  const { client, life, sessionId } = stage;
  const turn = await stage.turn();
  const text = (of: string): object => ({ sessionId, prompt: [{ type: 'text', text: of }] });
  const queued = client.ask('session/prompt', text('queued'));
  const other = await stage.join();
  const deleted = other.ask('session/delete', { sessionId });
  await life.saw('session/cancel');
  const late = await Promise.all([
    client.ask('session/prompt', text('late')),
    client.ask('session/load', { sessionId, cwd: '/', mcpServers: [] }),
    (await stage.join()).ask('session/delete', { sessionId }),
  ]);
  expect(late.map(({ message }) => message.error?.code)).toEqual([-32002, -32002, -32002]);
  life.reply(turn.request, { stopReason: 'cancelled' });
  expect((await turn.answer).message.error).toBeUndefined();
  expect((await queued).message.error).toBeUndefined();
  expect((await deleted).message.error).toBeUndefined();
  expect((await other.ask('session/load', { sessionId, cwd: '/', mcpServers: [] })).message.error?.code).toBe(-32002);
  expect(life.received.filter(({ message }) => message.method === 'session/prompt').length).toBe(1);
});
