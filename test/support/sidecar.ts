import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { RawClient } from './raw-client.ts';
import type { WebSocketOptions } from './raw-transport.ts';
import { Scope } from './scope.ts';
import { ROOT } from './scripted-agent.ts';
import { tempDir } from './temp-dir.ts';
import { waitFor, within } from './wait-for.ts';

const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { bin: Record<string, string> };

/** The program that the package installs. */
export const SIDECAR_PROGRAM = join(ROOT, manifest.bin['acp-sidecar'] ?? 'no bin in package.json');

export interface SidecarOptions {
  readonly agent: readonly string[];
  /** Options before `--`. */
  readonly args?: readonly string[];
  /** A new temporary directory by default. */
  readonly store?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** Another build of the sidecar. */
  readonly program?: string;
}

export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** The processes that carry this mark in their environment: everything a sidecar started, however it was orphaned. */
export function processesMarked(mark: string): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        return pid !== process.pid && readFileSync(`/proc/${pid}/environ`, 'latin1').includes(mark);
      } catch {
        return false; // It ended while we looked, or it belongs to somebody else.
      }
    });
}

export interface CommandResult extends Exit {
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs one command of the CLI to its end. */
export async function runCommand(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<CommandResult> {
  const child = spawn(process.execPath, [SIDECAR_PROGRAM, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, ...env },
  });
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const exit = await within(
    () => `acp-sidecar ${args.join(' ')} to end; stderr:\n${stderr}`,
    new Promise<Exit>((resolve) => child.once('close', (code, signal) => resolve({ code, signal }))),
    30_000,
  );
  return { ...exit, stdout, stderr };
}

/** A real `acp-sidecar serve` on a store that outlives its processes. When its scope ends nothing of it may be left. */
export class Sidecar {
  readonly store: string;
  readonly socketPath: string;
  /** Of the running process. */
  wsUrl = '';
  readyLine = '';
  stdout = '';
  stderr = '';
  readonly #options: SidecarOptions;
  readonly #scope: Scope;
  readonly #mark = `ACP_TEST_MARK=${randomUUID()}`;
  #child: ChildProcess | undefined;
  #exit: Promise<Exit> | undefined;

  private constructor(scope: Scope, options: SidecarOptions) {
    this.#scope = scope;
    this.#options = options;
    const dir = tempDir(scope);
    this.store = options.store ?? join(dir, 'store');
    this.socketPath = join(dir, 's.sock');
  }

  static async start(scope: Scope, options: SidecarOptions): Promise<Sidecar> {
    const sidecar = new Sidecar(scope, options);
    scope.defer(() => sidecar.#end());
    await sidecar.start();
    return sidecar;
  }

  get pid(): number {
    return this.#child?.pid ?? 0;
  }

  /** Starts a process on the store; the one before must have ended. */
  async start(): Promise<void> {
    const { agent, args = [], env = {}, program = SIDECAR_PROGRAM } = this.#options;
    const [name = '', value = ''] = this.#mark.split('=');
    const listen = ['--listen', '127.0.0.1:0', '--listen', `unix:${this.socketPath}`];
    const child = spawn(
      process.execPath,
      [program, 'serve', '--store', this.store, ...listen, ...args, '--', ...agent],
      { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env, [name]: value } },
    );
    this.#child = child;
    this.stdout = '';
    this.#exit = new Promise((resolve) => child.once('close', (code, signal) => resolve({ code, signal })));
    child.stderr?.setEncoding('utf8').on('data', (text: string) => (this.stderr += text));
    child.stdout?.setEncoding('utf8').on('data', (text: string) => (this.stdout += text));
    const line = new Promise<string>((resolve) => {
      child.stdout?.on('data', () => {
        if (this.stdout.includes('\n')) resolve(this.stdout.slice(0, this.stdout.indexOf('\n')));
      });
    });
    const early = this.#exit.then((exit): never => {
      throw new Error(`the sidecar ended before it was ready: ${JSON.stringify(exit)}\n${this.stderr}`);
    });
    early.catch(() => undefined);
    this.readyLine = await within(() => `the ready line; stderr:\n${this.stderr}`, Promise.race([line, early]));
    const ready = JSON.parse(this.readyLine) as { event: string; endpoints: string[]; pid: number };
    this.wsUrl = ready.endpoints.find((endpoint) => endpoint.startsWith('ws://')) ?? '';
  }

  async exited(): Promise<Exit> {
    if (!this.#exit) throw new Error('the sidecar was never started');
    return within(() => `the sidecar to exit; stderr:\n${this.stderr.slice(-2000)}`, this.#exit, 30_000);
  }

  async kill(): Promise<Exit> {
    this.#child?.kill('SIGKILL');
    return this.exited();
  }

  async stop(): Promise<Exit> {
    this.#child?.kill('SIGTERM');
    return this.exited();
  }

  async restart(): Promise<void> {
    await this.kill();
    await this.start();
  }

  /** Everything this sidecar started and that still runs, itself included. */
  processes(): number[] {
    return processesMarked(this.#mark);
  }

  async unix(scope: Scope = this.#scope): Promise<RawClient> {
    return RawClient.unix(scope, this.socketPath);
  }

  async webSocket(scope: Scope = this.#scope, options: WebSocketOptions = {}): Promise<RawClient> {
    return RawClient.webSocket(scope, this.wsUrl, options);
  }

  async #end(): Promise<void> {
    const child = this.#child;
    if (child && child.exitCode === null && child.signalCode === null) await this.stop();
    try {
      await waitFor(
        () =>
          `nothing to be left of the sidecar; still there: ${this.processes().join(' ')}\n${this.stderr.slice(-2000)}`,
        () => this.processes().length === 0,
        { timeoutMs: 10_000, intervalMs: 20 },
      );
    } finally {
      for (const pid of this.processes()) process.kill(pid, 'SIGKILL');
    }
  }
}
