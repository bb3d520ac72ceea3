/** What people see in a terminal, and programs in a pipe. */
import { execFile, spawn } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { testScope } from '../support/scope.ts';
import { ROOT } from '../support/scripted-agent.ts';
import { runCommand, SIDECAR_PROGRAM } from '../support/sidecar.ts';
import { setStage } from '../support/stage.ts';
import { tempDir } from '../support/temp-dir.ts';
import { waitFor } from '../support/wait-for.ts';

const run = promisify(execFile);
const EXAMPLE_AGENT = join(ROOT, 'dist/examples/agent.js');
// oxlint-disable-next-line no-control-regex -- it is what is looked for
const COLOUR = /\x1b\[\d+m/g;

/** Runs a command of the CLI in a terminal of 70 columns; the lines that it shows. */
async function inTerminal(args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<string[]> {
  const command = `stty cols 70; exec ${[process.execPath, SIDECAR_PROGRAM, ...args].map((arg) => `'${arg}'`).join(' ')}`;
  const { stdout } = await run('script', ['-qec', command, '/dev/null'], {
    env: { ...process.env, TERM: 'xterm', NO_COLOR: '', ...env },
  });
  return stdout.split('\r\n').filter((line) => line !== '');
}

describe.runIf(process.platform === 'linux')('a terminal', () => {
  it('gets colour and lines that fit; with NO_COLOR no colour; a pipe gets all of it, plain', async () => {
    const stage = await setStage(testScope());
    const { sidecar, sessionId, life, agentSessionId } = stage;
    const open = await stage.turn(`a long question ${'that goes on '.repeat(20)}`);
    life.say(agentSessionId, 'an \x1b[2Janswer');
    await open.end();
    const store = ['--store', sidecar.store];
    for (const args of [['sessions'], ['events', sessionId]]) {
      const shown = await inTerminal([...args, ...store]);
      expect(shown.join('\n'), args[0]).toMatch(COLOUR);
      expect(Math.max(...shown.map((line) => line.replace(COLOUR, '').length)), args[0]).toBeLessThanOrEqual(70);
      expect((await inTerminal([...args, ...store], { NO_COLOR: '1' })).join('\n'), args[0]).not.toMatch(COLOUR);
      const { stdout } = await runCommand([...args, ...store]);
      expect(stdout, args[0]).not.toMatch(COLOUR);
      expect(Math.max(...stdout.split('\n').map((line) => line.length)), args[0]).toBeGreaterThan(70);
    }
    const history = await inTerminal(['history', sessionId, ...store]);
    expect(history.join('\n')).toContain('\x1b[36muser:\x1b[0m a long question');
    // What an agent says cannot steer the terminal.
    expect(history.join('\n')).toContain('an  [2Janswer');
    expect(history.join('\n')).not.toContain('\x1b[2J');
  });

  it('that goes away ends a server in good order, whatever it has to say', { timeout: 60_000 }, async () => {
    const scope = testScope();
    const dir = tempDir(scope);
    const store = join(dir, 'store');
    const serve = ['serve', '--store', store, '--listen', '127.0.0.1:0', '--', process.execPath, EXAMPLE_AGENT];
    const command = `exec ${[process.execPath, SIDECAR_PROGRAM, ...serve].map((arg) => `'${arg}'`).join(' ')}`;
    const terminal = spawn('script', ['-qec', command, '/dev/null'], { stdio: ['ignore', 'pipe', 'ignore'] });
    scope.defer(() => terminal.kill('SIGKILL'));
    let shown = '';
    terminal.stdout.on('data', (bytes: Buffer) => (shown += bytes.toString()));
    await waitFor('the ready line', () => shown.includes('"ready"'));
    const pid = Number(/"pid":(\d+)\}/.exec(shown)?.[1]);
    expect(pid).toBeGreaterThan(1);
    terminal.kill('SIGKILL');
    await waitFor('the server to end', () => !existsSync(`/proc/${pid}`));
    // In good order: whoever dies leaves these.
    expect(readdirSync(store).filter((name) => /^(owner|control|lock-)/.test(name))).toEqual([]);
  });
});
