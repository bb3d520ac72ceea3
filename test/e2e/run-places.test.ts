/** Where `run` finds its daemon: by the store, wherever its socket is. */
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { RawClient } from '../support/raw-client.ts';
import { RunPlace } from '../support/run-editors.ts';
import { testScope } from '../support/scope.ts';
import { ScriptedAgent } from '../support/scripted-agent.ts';
import { runCommand } from '../support/sidecar.ts';
import { tempDir } from '../support/temp-dir.ts';

async function editor(place: RunPlace): Promise<RawClient> {
  const raw = place.editor();
  await raw.initialize();
  return raw;
}

describe('a daemon whose socket is not where run looks for it', () => {
  async function joined(change: (place: RunPlace, otherDir: string) => string): Promise<void> {
    const scope = testScope();
    const agent = await ScriptedAgent.listen(scope);
    const place = new RunPlace(scope, agent.command);
    const first = await editor(place);
    const sessionId = await first.newSession();
    const [pid] = place.daemons();
    const runtimeDir = change(place, tempDir(scope));
    const at = place.command.indexOf(process.execPath);
    const command = place.command.toSpliced(at, 0, `XDG_RUNTIME_DIR=${runtimeDir}`);
    const second = RawClient.direct(scope, command);
    await second.initialize();
    await second.load(sessionId);
    expect(place.daemons()).toEqual([pid]);
    // The first is still there, and both see what is said.
    const turn = first.prompt(sessionId, 'hello');
    (await agent.life()).reply((await (await agent.life()).saw('session/prompt')).message, { stopReason: 'end_turn' });
    await turn;
    await second.until('the prompt', ({ text }) => text.includes('user_message_chunk'));
  }

  it('because the runtime directory is another one', () => joined((_place, otherDir) => otherDir));

  it('because it was taken away', () =>
    joined((place) => {
      const dir = place.own()['XDG_RUNTIME_DIR'] ?? '';
      rmSync(dir, { recursive: true });
      mkdirSync(dir, { mode: 0o700 });
      return dir;
    }));
});

it('status and stop of an agent take the store that run was given', async () => {
  const scope = testScope();
  const agent = await ScriptedAgent.listen(scope);
  const store = ['--store', join(tempDir(scope), 'named')];
  const place = new RunPlace(scope, agent.command, store);
  const raw = await editor(place);
  await raw.newSession();
  const status = await runCommand(['status', '--json', ...store, '--', ...agent.command], place.own());
  expect(JSON.parse(status.stdout)).toMatchObject({ running: true, pid: place.daemons()[0] });
  raw.close();
  expect((await runCommand(['stop', ...store, '--', ...agent.command], place.own())).code).toBe(0);
  await place.allGone();
});
