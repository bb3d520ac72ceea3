/** Editors that start `acp-sidecar run`: each is a process of its own with pipes, in an environment that is theirs alone. */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { RawClient } from './raw-client.ts';
import type { Scope } from './scope.ts';
import { SIDECAR_PROGRAM, processesMarked } from './sidecar.ts';
import { tempDir } from './temp-dir.ts';
import { waitFor } from './wait-for.ts';

export class RunPlace {
  readonly mark = `ACP_TEST_MARK=${randomUUID()}`;
  /** XDG_STATE_HOME and XDG_RUNTIME_DIR lie in it. */
  readonly dir: string;
  readonly args: readonly string[];
  readonly #scope: Scope;
  readonly #env: Readonly<Record<string, string>>;

  constructor(scope: Scope, agent: readonly string[], options: readonly string[] = [], env: object = {}) {
    this.#scope = scope;
    this.dir = tempDir(scope);
    const [name = '', value = ''] = this.mark.split('=');
    const dirs = { XDG_STATE_HOME: join(this.dir, 'state'), XDG_RUNTIME_DIR: join(this.dir, 'run') };
    this.#env = { ...(process.env as Record<string, string>), ...dirs, [name]: value, ...env };
    this.args = ['run', '--log-level', 'warn', ...options, '--', ...agent];
    scope.defer(() => this.#end());
  }

  /** The command of an editor, as it would stand in its configuration. */
  get command(): string[] {
    return [
      '/usr/bin/env',
      ...Object.entries(this.own()).map(([k, v]) => `${k}=${v}`),
      process.execPath,
      SIDECAR_PROGRAM,
      ...this.args,
    ];
  }

  /** What it sets in the environment. */
  own(): Record<string, string> {
    return Object.fromEntries(Object.entries(this.#env).filter(([key, value]) => process.env[key] !== value));
  }

  editor(): RawClient {
    return RawClient.direct(this.#scope, this.command);
  }

  /** A bridge whose process the test has in hand. */
  spawn(): ChildProcess {
    return spawn(process.execPath, [SIDECAR_PROGRAM, ...this.args], {
      env: this.#env,
      stdio: ['pipe', 'pipe', 'pipe'],
    });
  }

  processes(): number[] {
    return processesMarked(this.mark);
  }

  /** Pids of daemons. */
  daemons(): number[] {
    return this.processes().filter((pid) => commandLine(pid).at(-1) === 'daemon');
  }

  /** Pids of bridges. */
  bridges(): number[] {
    return this.processes().filter((pid) => commandLine(pid).includes('run'));
  }

  /** Names of files in the directory of the sockets. */
  sockets(): string[] {
    try {
      return readdirSync(join(this.dir, 'run', 'acp-sidecar'));
    } catch {
      return [];
    }
  }

  async allGone(timeoutMs = 30_000): Promise<void> {
    await waitFor(
      () => `no process to be left, there are ${this.processes().join(' ')}`,
      () => this.processes().length === 0,
      { timeoutMs, intervalMs: 20 },
    );
  }

  async #end(): Promise<void> {
    for (const pid of this.processes()) {
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // It ended by itself.
      }
    }
    await this.allGone();
  }
}

function commandLine(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8')
      .split('\0')
      .filter((part) => part !== '');
  } catch {
    return [];
  }
}
