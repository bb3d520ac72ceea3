/** Many deletions: what is left of the oldest hides the agent's copies all the same. */
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { openLmdbEventLogReadOnly } from '../../storage/lmdb-event-log.ts';
import { buildWithFault } from '../support/faulty-build.ts';
import { at, textAt } from '../support/json.ts';
import { RpcError } from '../support/raw-client.ts';
import { testScope } from '../support/scope.ts';
import { runCommand } from '../support/sidecar.ts';
import { setStage } from '../support/stage.ts';
import { metricOf } from '../support/sidecar-facts.ts';
import { tempDir } from '../support/temp-dir.ts';
import { waitFor } from '../support/wait-for.ts';

const KEPT = 4;
const FIRST = 'agent-session-1';
const KEPT_ALIVE = 'agent-session-12';
/** The sessions that are deleted, in this order. */
const GONE = [FIRST, ...Array.from({ length: 10 }, (_, i) => `agent-session-${i + 2}`)];

/** A sidecar that keeps the rows of few deleted sessions: its program's path. */
function forgetfulProgram(): Promise<string> {
  return buildWithFault({
    name: 'forgetful',
    file: 'storage/retention.ts',
    replace: [['const KEPT_TOMBSTONES = 4096;', `const KEPT_TOMBSTONES = ${KEPT};`]],
  });
}

async function deletedRows(store: string): Promise<number> {
  const log = await openLmdbEventLogReadOnly(store);
  const rows = [...log.rows()].filter(({ tombstone }) => tombstone).length;
  await log.close();
  return rows;
}

it('[RT6] [SS3] sessions that were deleted stay deleted when their rows are gone: not shown, imported or given away', {
  timeout: 60_000,
}, async () => {
  const scope = testScope();
  const stage = await setStage(scope, {
    program: await forgetfulProgram(),
    capabilities: { loadSession: true, sessionCapabilities: { list: {} } },
    handlers: {
      'session/list': () => ({
        sessions: [...GONE, KEPT_ALIVE, 'foreign'].map((sessionId) => ({ sessionId, cwd: '/tmp' })),
      }),
      'session/load': (request, life) => {
        life.say(textAt(request.params, 'sessionId'), 'said once');
        return {};
      },
    },
  });
  const { sidecar, agent } = stage;
  const store = (command: string, ...args: string[]): ReturnType<typeof runCommand> => {
    return runCommand([command, '--store', sidecar.store, ...args]);
  };
  for (const _ of GONE) await stage.client.newSession();
  const file = join(tempDir(scope), 'exported');
  expect((await store('export', FIRST, '--out', file)).code).toBe(0);
  for (const sessionId of GONE) await stage.client.request('session/delete', { sessionId });
  await waitFor('few rows', async () => (await deletedRows(sidecar.store)) <= KEPT);
  await sidecar.restart();

  const client = await stage.join();
  const shown = async (): Promise<string[]> => {
    const listed = (await client.request('session/list', {})) as { sessions: { sessionId: string }[] };
    return listed.sessions.map(({ sessionId }) => sessionId);
  };
  expect(await shown()).toEqual([KEPT_ALIVE, 'foreign']);
  for (const sessionId of GONE) {
    for (const method of ['session/load', 'session/resume', 'session/prompt', '_sidecar/status']) {
      const params = { sessionId, cwd: '/tmp', mcpServers: [], prompt: [{ type: 'text', text: 'x' }] };
      const error: unknown = await client.request(method, params).catch((caught: unknown) => caught);
      expect([sessionId, method, (error as RpcError).code]).toEqual([sessionId, method, -32002]);
    }
  }
  const life = await agent.life(1);
  expect(life.received.filter(({ message }) => message.method === 'session/load')).toEqual([]);
  await client.load('foreign');
  // What the agent still says of one is nobody else's.
  life.say(FIRST, 'a ghost');
  life.say('foreign', 'still here');
  await client.until('what follows it', ({ text }) => text.includes('still here'));
  expect(await metricOf(sidecar, 'acp_sidecar_messages_dropped_total{cause="agent_deleted_session"}')).toBe(1);
  expect((await store('events', 'foreign')).stdout).not.toContain('a ghost');
  expect(await shown()).toEqual(['foreign', KEPT_ALIVE]);

  // Some agents count from 1 in each process.
  agent.handlers.set('session/new', () => ({ sessionId: FIRST }));
  const made = await client.newSession();
  expect(made).toMatch(/^agent-session-1-[0-9a-f]{8}$/);
  const again = await store('delete', FIRST);
  expect([again.code, again.stderr]).toEqual([1, expect.stringContaining('is not in this store') as string]);
  expect((await store('verify')).stdout).toContain('all is well');
  // Who brings it back by hand has it again.
  expect((await store('import', file)).stdout).toBe(`${FIRST}\n`);
  expect(at(await client.load(FIRST), '_meta', 'sidecar', 'mode')).toBe('full');
  expect(new Set(await shown())).toEqual(new Set([made, FIRST, KEPT_ALIVE, 'foreign']));
});
