/** `acpx`, a client that knows nothing of us, in front of `run` and `connect`. `npm run test:acpx` brings it. */
import { execFile, execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { RunPlace } from '../support/run-editors.ts';
import { testScope } from '../support/scope.ts';
import { ROOT } from '../support/scripted-agent.ts';
import { SIDECAR_PROGRAM, Sidecar } from '../support/sidecar.ts';
import { tempDir } from '../support/temp-dir.ts';

const run = promisify(execFile);
const EXAMPLE_AGENT = [process.execPath, join(ROOT, 'dist/examples/agent.js')];

function installed(): string | undefined {
  try {
    return execFileSync('which', ['acpx'], { encoding: 'utf8' }).trim();
  } catch {
    return undefined;
  }
}

const acpx = installed();

async function ask(agent: string, env: object): Promise<string> {
  const args = ['--approve-all', '--agent', agent, 'exec', 'use the tool'];
  const { stdout } = await run(acpx ?? '', args, { env: { ...process.env, ...env }, timeout: 60_000 });
  return stdout;
}

describe.skipIf(acpx === undefined)('acpx', () => {
  it('drives run', async () => {
    const scope = testScope();
    const place = new RunPlace(scope, EXAMPLE_AGENT, ['--idle-exit', '200ms'], { EXAMPLE_AGENT_WORD_MS: '1' });
    const command = [process.execPath, SIDECAR_PROGRAM, ...place.args].join(' ');
    const told = await ask(command, { ...place.own(), HOME: tempDir(scope) });
    expect(told).toContain('the next entry is already dry.');
    expect(told).toContain('end_turn');
    await place.allGone();
  });

  it('drives connect', async () => {
    const scope = testScope();
    const sidecar = await Sidecar.start(scope, { agent: EXAMPLE_AGENT, env: { EXAMPLE_AGENT_WORD_MS: '1' } });
    const command = [process.execPath, SIDECAR_PROGRAM, 'connect', sidecar.wsUrl].join(' ');
    const told = await ask(command, { HOME: tempDir(scope) });
    expect(told).toContain('the next entry is already dry.');
    expect(told).toContain('end_turn');
  });
});
