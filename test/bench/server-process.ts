/** One server under measurement: the sidecar or a bridge, in front of the bench agent, in a process of its own. */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { nowNs } from './script.ts';

export type ServerKind = 'sidecar' | 'plain' | 'cork';

const ROOT = resolve(import.meta.dirname, '../../..');
export const SIDECAR = join(ROOT, 'bin/acp-sidecar.cjs');
const HERE = join(ROOT, 'dist/test/bench');
const STDERR_TAIL_CHARS = 2_000;

export function agentCommand(): string[] {
  return [process.execPath, join(HERE, 'bench-agent.js')];
}

function commandOf(kind: ServerKind, store: string): readonly string[] {
  const agent = agentCommand();
  if (kind !== 'sidecar') return [process.execPath, join(HERE, 'byte-bridge.js'), kind, ...agent];
  if (!existsSync(SIDECAR)) throw new Error(`${SIDECAR} is not built`);
  return [SIDECAR, 'serve', '--store', store, '--listen', '127.0.0.1:0', '--', ...agent];
}

const running = new Set<ServerProcess>();

/** Ends every server that a failed case left behind. */
export async function stopAll(): Promise<void> {
  await Promise.all([...running].map((server) => server.stop()));
}

export class ServerProcess {
  readonly startedAtNs = nowNs();
  readyAtNs = 0;
  url = '';
  readonly #child: ChildProcess;
  readonly #exited: Promise<void>;
  #stderr = '';

  /** Resolves when the server printed its ready line. */
  static async start(kind: ServerKind, store: string): Promise<ServerProcess> {
    const server = new ServerProcess(kind, store);
    await server.#ready(kind);
    return server;
  }

  private constructor(kind: ServerKind, store: string) {
    const [program = '', ...args] = commandOf(kind, store);
    this.#child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    running.add(this);
    this.#child.stderr?.on('data', (chunk: Buffer) => {
      this.#stderr = (this.#stderr + String(chunk)).slice(-STDERR_TAIL_CHARS);
    });
    this.#exited = new Promise((done) => {
      this.#child.once('close', () => {
        running.delete(this);
        done();
      });
    });
  }

  #ready(kind: ServerKind): Promise<void> {
    return new Promise((done, fail) => {
      void this.#exited.then(() => {
        const lines = this.#stderr.trim().split('\n');
        fail(
          new Error(`${kind} ended before it was ready: ${lines.find((line) => /error/i.test(line)) ?? lines.at(-1)}`),
        );
      });
      const stdout = this.#child.stdout;
      if (!stdout) return fail(new Error('no stdout'));
      createInterface({ input: stdout }).on('line', (line) => {
        this.readyAtNs = nowNs();
        const { endpoints } = JSON.parse(line) as { endpoints?: readonly string[] };
        this.url = endpoints?.[0] ?? '';
        done();
      });
    });
  }

  get #pid(): number {
    return this.#child.pid ?? 0;
  }

  /** Processor time of all its threads, not of its agent, in nanoseconds. */
  cpuNs(): number {
    const tasks = `/proc/${this.#pid}/task`;
    let sum = 0;
    for (const task of readdirSync(tasks))
      sum += Number(readFileSync(`${tasks}/${task}/schedstat`, 'utf8').split(' ')[0]);
    return sum;
  }

  /** The most memory it ever held, file pages included, and what of its memory now is its own, in MiB. */
  memoryMiB(): { readonly peak: number; readonly anonymous: number } {
    const status = readFileSync(`/proc/${this.#pid}/status`, 'utf8');
    const kiB = (key: string): number => Number(new RegExp(`^${key}:\\s+(\\d+) kB`, 'm').exec(status)?.[1]);
    return { peak: kiB('VmHWM') / 1024, anonymous: kiB('RssAnon') / 1024 };
  }

  async stop(): Promise<void> {
    this.#child.kill('SIGTERM');
    const late = setTimeout(() => this.#child.kill('SIGKILL'), 5_000);
    await this.#exited;
    clearTimeout(late);
  }

  /** `kill -9`; does not wait for the end. */
  kill(): void {
    this.#child.kill('SIGKILL');
  }
}

/** Allocated bytes of a store; the ballast kept for a full disk is no data. */
export function storeBytes(directory: string): number {
  let sum = 0;
  for (const entry of readdirSync(directory, { withFileTypes: true, recursive: true })) {
    if (entry.isFile() && !entry.name.includes('ballast'))
      sum += statSync(join(entry.parentPath, entry.name)).blocks * 512;
  }
  return sum;
}
