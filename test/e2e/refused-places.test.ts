/** Places that cannot be used: each is refused in words, with the exit code that the README names. */
import { spawnSync } from 'node:child_process';
import { chmodSync, chownSync, existsSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { testScope } from '../support/scope.ts';
import { SIDECAR_PROGRAM, Sidecar, runCommand } from '../support/sidecar.ts';
import { streamAgentCommand } from '../support/scripted-agent.ts';
import { tempDir } from '../support/temp-dir.ts';

const INITIALIZE = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n';
const NOBODY = 65534;

describe('HOME', () => {
  it.each(['', 'relative/home'])('%j is no place for a store', async (HOME) => {
    for (const args of [['sessions'], ['run', '--', 'true'], ['serve', '--', 'true']]) {
      const { code, stderr } = await runCommand(args, { HOME, XDG_STATE_HOME: '' });
      expect([code, stderr]).toEqual([
        2,
        `acp-sidecar: HOME is ${JSON.stringify(HOME)}, which is not an absolute path\n`,
      ]);
    }
  });

  it('below /proc, where nothing can be made: run answers its editor and ends', () => {
    const env = { ...process.env, HOME: '/proc/1/home', XDG_STATE_HOME: '', XDG_RUNTIME_DIR: tempDir(testScope()) };
    const { status, stdout } = spawnSync(process.execPath, [SIDECAR_PROGRAM, 'run', '--', 'true'], {
      env,
      input: INITIALIZE,
      encoding: 'utf8',
      timeout: 20_000,
      killSignal: 'SIGKILL',
    });
    expect(status).toBe(4);
    expect(JSON.parse(stdout)).toMatchObject({ id: 1, error: { data: { kind: 'internal' } } });
    expect(stdout).toContain('the store /proc/1/home/.local/state/acp-sidecar/run/');
  });
});

it('a directory for sockets that cannot be made: run says which, and what names it', async () => {
  const { code, stderr } = await runCommand(['run', '--', 'true'], { XDG_RUNTIME_DIR: '/proc/1/run' });
  expect(code).toBe(1);
  expect(stderr).toContain('the directory for sockets /proc/1/run/acp-sidecar cannot be written');
  expect(stderr).toContain('XDG_RUNTIME_DIR');
});

it('[AC1] a Unix socket where others can enter is refused before the agent is started', async () => {
  const dir = tempDir(testScope());
  const open = join(dir, 'open');
  mkdirSync(open);
  chmodSync(open, 0o755);
  const args = ['serve', '--store', join(dir, 'store'), '--listen', `unix:${join(open, 's.sock')}`];
  const { code, stderr } = await runCommand([...args, '--', 'touch', join(dir, 'started')]);
  expect(code).toBe(2);
  expect(stderr).toContain('mode 0755');
  expect(existsSync(join(dir, 'started'))).toBe(false);
  expect(existsSync(join(dir, 'store'))).toBe(false);
});

/** As a user who is not root, for root may write everything. */
function asNobody(args: readonly string[]): { status: number | null; stderr: string } {
  const uid = process.getuid?.() === 0 ? { uid: NOBODY } : {};
  return spawnSync(process.execPath, [SIDECAR_PROGRAM, ...args], {
    ...uid,
    cwd: '/',
    encoding: 'utf8',
    timeout: 20_000,
  });
}

it.runIf(asNobody(['--version']).status === 0)(
  'a store that cannot be written: exit code 4, and it says so',
  async () => {
    const scope = testScope();
    const dir = tempDir(scope);
    chmodSync(dir, 0o755);
    const sidecar = await Sidecar.start(scope, { agent: streamAgentCommand(), store: join(dir, 'store') });
    await sidecar.stop();
    for (const name of ['', ...readdirSync(sidecar.store)]) {
      const path = join(sidecar.store, name);
      if (process.getuid?.() === 0) chownSync(path, NOBODY, NOBODY);
      if (name.endsWith('.mdb')) chmodSync(path, 0o400);
    }
    const backup = ['backup', join(dir, 'copy'), '--store', sidecar.store];
    for (const args of [backup, ['serve', '--store', sidecar.store, '--', 'true']]) {
      const { status, stderr } = asNobody(args);
      expect(status, stderr).toBe(4);
      expect(stderr).toContain(`the store ${sidecar.store} cannot be written: Permission denied`);
      expect(stderr).not.toContain('    at ');
    }
  },
);
