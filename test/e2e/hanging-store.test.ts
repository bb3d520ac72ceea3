/** A commit that never settles, as on a disk that answers no more: the process stops, and the next one goes on. */
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, expect, it } from 'vitest';
import { hangingStoreProgram } from '../support/faulty-store.ts';
import { HANGS } from '../support/hanging-commit.ts';
import { at, eventIdOf } from '../support/json.ts';
import { RawClient } from '../support/raw-client.ts';
import { openRoom } from '../support/room.ts';
import { testScope } from '../support/scope.ts';
import { runCommand, SIDECAR_PROGRAM } from '../support/sidecar.ts';
import { tempDir } from '../support/temp-dir.ts';

const AGENT_SESSION = 'agent-session-1';
const SETTLED = /^[0-9a-z]+-\d+$/;

let program = '';
beforeAll(async () => {
  program = await hangingStoreProgram();
});

for (const became of HANGS) {
  it(`[DU7] exit 4 and 1012; what was acknowledged is there, the rest is repaired, connect goes on (${became})`, async () => {
    const scope = testScope();
    const hangFile = join(tempDir(scope), 'hang');
    const { sidecar, life, agent, enter } = await openRoom(scope, { program, env: { STORE_HANG_FILE: hangFile } });
    scope.defer(() => rmSync(hangFile, { force: true }));
    const editor = RawClient.direct(scope, [process.execPath, SIDECAR_PROGRAM, 'connect', sidecar.socketPath]);
    await editor.initialize();
    const sessionId = await editor.newSession();
    const prompt = (text: string): ReturnType<RawClient['ask']> =>
      editor.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text }] });
    const first = prompt('one');
    const one = await life().saw('session/prompt');
    life().say(AGENT_SESSION, 'first answer');
    life().reply(one.message, { stopReason: 'end_turn' });
    expect((await first).message.error).toBeUndefined();
    const watcher = await sidecar.webSocket();
    await watcher.initialize({ sidecar: true });
    await watcher.load(sessionId);

    const second = prompt('two');
    await life().saw('session/prompt', 1);
    life().update(AGENT_SESSION, {
      sessionUpdate: 'tool_call',
      toolCallId: 'before',
      title: 'T',
      status: 'in_progress',
    });
    await watcher.until('the tool call', ({ text }) => text.includes('"before"'));
    writeFileSync(hangFile, became);
    life().update(AGENT_SESSION, {
      sessionUpdate: 'tool_call',
      toolCallId: 'during',
      title: 'T',
      status: 'in_progress',
    });

    expect((await watcher.untilClosed()).code).toBe(1012);
    expect(watcher.received.some(({ text }) => text.includes('"state":"failed"'))).toBe(true);
    expect((await sidecar.exited()).code).toBe(4);
    expect(sidecar.stderr).toMatch(/a commit did not settle in 1 s.*the store failed; this process writes no more/);
    // Nothing undurable was shown.
    expect(watcher.received.some(({ text }) => text.includes('"during"'))).toBe(false);

    rmSync(hangFile);
    await sidecar.start();
    expect((await second).message.error).toMatchObject({ data: { code: 'PROMPT_OUTCOME_UNKNOWN' } });
    const third = prompt('three');
    const next = await agent.life(1);
    next.reply((await next.saw('session/prompt')).message, { stopReason: 'end_turn' });
    expect(at((await third).message, 'result', 'stopReason')).toBe('end_turn');

    const reader = await enter();
    await reader.load(sessionId);
    expect(reader.agentText(sessionId)).toContain('first answer');
    const ids = new Set(reader.received.map(({ message }) => eventIdOf(message)));
    const shown = watcher.updates(sessionId).map(({ message }) => eventIdOf(message) ?? '');
    expect(shown.filter((id) => SETTLED.test(id) && !ids.has(id))).toEqual([]);
    const texts = reader.received.map(({ text }) => text);
    // The calls that are in the log are closed, and the turn.
    const closed = texts.filter((text) => text.includes('TOOL_OUTCOME_UNKNOWN'));
    expect(closed.length).toBe(became === 'written' ? 2 : 1);
    expect(texts.some((text) => text.includes('"during"'))).toBe(became === 'written');
    const asked = agent.lives.flatMap(({ received }) =>
      received.filter(({ message }) => message.method === 'session/prompt'),
    );
    expect(asked.length).toBe(3);
    expect((await runCommand(['verify', '--store', sidecar.store])).stdout).toContain('all is well');
  }, 60_000);
}

it('[DU3] session/new is not answered while its session_created is not durable', async () => {
  const scope = testScope();
  const hangFile = join(tempDir(scope), 'hang');
  const { sidecar, life, enter } = await openRoom(scope, { program, env: { STORE_HANG_FILE: hangFile } });
  scope.defer(() => rmSync(hangFile, { force: true }));
  const client = await enter();
  await client.newSession();
  writeFileSync(hangFile, 'unwritten');
  const from = client.received.length;
  client.sendMessage({ id: 'new', method: 'session/new', params: { cwd: '/tmp', mcpServers: [] } });
  await life().saw('session/new', 1);
  expect((await sidecar.exited()).code).toBe(4);
  await client.untilClosed();
  expect(client.received.slice(from).filter(({ message }) => message.id === 'new')).toEqual([]);
  rmSync(hangFile);
  await sidecar.start();
  const listed = await (await enter()).request('session/list');
  expect(at(listed, 'sessions')).toHaveLength(1);
});
