/** A fork for which the agent is asked while the session goes on and loses its beginning. */
import { expect, it } from 'vitest';
import { at } from '../support/json.ts';
import { testScope } from '../support/scope.ts';
import { runCommand } from '../support/sidecar.ts';
import { setStage } from '../support/stage.ts';

it('[SS5] [RT1] what was pruned meanwhile is not forked at, and the agent is told to drop its fork', async () => {
  const capabilities = { sessionCapabilities: { fork: {}, delete: {} } };
  const stage = await setStage(testScope(), { capabilities });
  const { client, life, sessionId, sidecar } = stage;
  const prompt = async (text: string): Promise<void> => void (await (await stage.turn(text)).end());
  await prompt('one');
  const asked = client.ask('session/fork', { sessionId, cwd: '/tmp', mcpServers: [] });
  const request = (await life.saw('session/fork')).message;
  for (const text of ['two', 'three', 'four']) await prompt(text);
  const pruned = await runCommand(['prune', sessionId, '--retain-events', '2', '--store', sidecar.store]);
  expect(pruned.stdout).toContain('events before');
  life.reply(request, { sessionId: 'fork-1' });
  const { message } = await asked;
  expect(message.error).toMatchObject({ code: -32602, message: expect.stringContaining('pruned') as string });
  await life.until('the end of its fork', () =>
    life.received.some(
      (entry) => entry.message.method === 'session/delete' && at(entry.message, 'params', 'sessionId') === 'fork-1',
    ),
  );
  // The session itself is as it was, and can be forked where it stands.
  await prompt('five');
  const again = client.ask('session/fork', { sessionId, cwd: '/tmp', mcpServers: [] });
  life.reply((await life.saw('session/fork', 1)).message, { sessionId: 'fork-2' });
  expect(at((await again).message, 'result', 'sessionId')).toBe('fork-2');
  const verified = await runCommand(['verify', '--store', sidecar.store]);
  expect(verified.stdout).toContain('all is well');
});
