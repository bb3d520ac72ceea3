import { expect, it } from 'vitest';
import { at } from '../support/json.ts';
import { testScope } from '../support/scope.ts';
import { setStage } from '../support/stage.ts';
import { waitFor } from '../support/wait-for.ts';

const SESSIONS = 8;
const CHUNKS = 40;
const CHUNK = 'x'.repeat(64 * 1024);

it('[OR6] a connection serves its sessions in turns: a long replay does not starve the others', async () => {
  // Room for one turn, so that the outbox is full before the others had theirs.
  const stage = await setStage(testScope(), { args: ['--client-buffer-bytes', '64KiB'] });
  const { life, client } = stage;
  const sessions = [stage.sessionId];
  while (sessions.length < SESSIONS) sessions.push(await client.newSession());
  for (const [i] of sessions.entries()) {
    for (let chunk = 0; chunk < CHUNKS; chunk++) {
      life.update(`agent-session-${i + 1}`, {
        sessionUpdate: 'agent_message_chunk',
        content: { type: 'text', text: CHUNK },
      });
    }
  }
  await waitFor('every session to have its text', () =>
    sessions.every((id) => client.agentText(id).length === CHUNKS * CHUNK.length),
  );
  const reader = await stage.join();
  const from = reader.received.length;
  await Promise.all(sessions.map((sessionId) => reader.ask('session/load', { sessionId, cwd: '/', mcpServers: [] })));
  const order = reader.received.slice(from).map(({ message }) => at(message, 'params', 'sessionId'));
  const firstEnds = Math.min(...sessions.map((id) => order.lastIndexOf(id)));
  for (const id of sessions) expect(order.indexOf(id)).toBeLessThan(firstEnds);
});
