/**
 * Hours in minutes: clients come, stream, are cut off and come back, the agent is killed, the sidecar once too, sessions
 * are deleted and pruned. What it costs is written down all the time and must be flat at the end: memory, what of it stays
 * after a collection, open files, reader slots of the store, size of its file.
 */
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { at } from '../support/json.ts';
import { DEBUGGABLE, liveHeapOf } from '../support/live-heap.ts';
import type { RawClient } from '../support/raw-client.ts';
import { Scope } from '../support/scope.ts';
import { streamAgentCommand } from '../support/scripted-agent.ts';
import { seededRandom } from '../support/seeded-random.ts';
import { runCommand, Sidecar } from '../support/sidecar.ts';
import { openFiles, ownMemoryMiB } from '../support/sidecar-facts.ts';
import { streamText } from '../support/stream-order.ts';

export interface Sample {
  readonly second: number;
  readonly memoryMiB: number;
  readonly files: number;
  readonly readers: number;
  readonly storeMiB: number;
}

export interface SoakReport {
  readonly samples: readonly Sample[];
  /** What stays after a collection, in MiB: at half-time, and at the end. */
  readonly kept: readonly number[];
  readonly turns: number;
  readonly cuts: number;
  readonly agentKills: number;
  readonly prunes: number;
}

export interface SoakOptions {
  readonly seed: number;
  readonly seconds: number;
  readonly report?: (line: string) => void;
}

const ACTORS = 6;
const KEPT_SESSIONS = 30;

const MAX_READERS = 64;
const SLOT_BYTES = 64;

/** Reader slots of the store that a process has taken. LMDB must not open the store of another process to see them. */
function readersOf(store: string, pid: number | undefined): number {
  const table = readFileSync(join(store, 'lock.mdb'));
  const first = table.length - MAX_READERS * SLOT_BYTES;
  const slots = Array.from({ length: MAX_READERS }, (_, n) => table.readUInt32LE(first + n * SLOT_BYTES + 8));
  return slots.filter((owner) => owner === pid).length;
}

export async function runSoak(scope: Scope, options: SoakOptions): Promise<SoakReport> {
  const sidecar = await Sidecar.start(scope, {
    agent: streamAgentCommand(),
    args: ['--max-open-sessions', '16', '--log-level', 'error'],
    env: DEBUGGABLE,
  });
  const soak = new Soak(sidecar, options);
  try {
    await soak.run();
  } catch (error) {
    throw new Error(`${String(error)}\nthe sidecar's log:\n${sidecar.stderr.slice(-3000)}`, { cause: error });
  }
  return soak;
}

class Soak implements SoakReport {
  readonly samples: Sample[] = [];
  readonly kept: number[] = [];
  turns = 0;
  cuts = 0;
  agentKills = 0;
  prunes = 0;
  readonly #sidecar: Sidecar;
  readonly #options: SoakOptions;
  readonly #random: () => number;
  readonly #started = performance.now();
  /** Sessions that there may be, with the last cursor that somebody had. */
  readonly #sessions = new Map<string, string | undefined>();
  #down: Promise<void> | undefined;
  #pruning: Promise<void> | undefined;

  constructor(sidecar: Sidecar, options: SoakOptions) {
    this.#sidecar = sidecar;
    this.#options = options;
    this.#random = seededRandom(options.seed);
  }

  get #seconds(): number {
    return (performance.now() - this.#started) / 1000;
  }

  get #over(): boolean {
    return this.#seconds >= this.#options.seconds;
  }

  async run(): Promise<void> {
    const actors = Array.from({ length: ACTORS }, () => this.#loop(() => this.#act(), 0));
    const pause = Math.min(5000, this.#options.seconds * 60);
    await Promise.all([
      ...actors,
      this.#loop(() => (this.#pruning = this.#prune()), pause),
      this.#loop(() => this.#killAgent(), pause * 2),
      this.#loop(() => this.#sample(), pause),
      this.#after(0.25, () => this.#restartOnce()),
      this.#after(0.5, () => this.#collect()),
    ]);
    await this.#sample();
    await this.#collect();
    const verified = await runCommand(['verify', '--store', this.#sidecar.store]);
    if (verified.code !== 0) throw new Error(`verify: ${verified.stdout}${verified.stderr}`);
  }

  async #loop(act: () => Promise<void>, pauseMs: number): Promise<void> {
    while (!this.#over) {
      await this.#down;
      await act();
      await new Promise((resolve) => setTimeout(resolve, pauseMs * (0.5 + this.#random())));
    }
  }

  /** One client's visit. */
  async #act(): Promise<void> {
    const scope = new Scope();
    try {
      const random = this.#random;
      const client = random() < 0.5 ? await this.#sidecar.webSocket(scope) : await this.#sidecar.unix(scope);
      await client.initialize(random() < 0.5 ? { sidecar: true } : {});
      const sessionId = await this.#attach(client);
      if (random() < 0.8) await this.#turn(client, sessionId);
      const cursor = client.cursors.get(sessionId);
      if (this.#sessions.has(sessionId)) this.#sessions.set(sessionId, cursor);
      if (random() < 0.1) {
        this.#sessions.delete(sessionId);
        await client.request('session/delete', { sessionId });
      }
    } catch (error) {
      if (!this.#expected(error)) throw error;
    } finally {
      await scope.end();
    }
  }

  async #attach(client: RawClient): Promise<string> {
    const known = [...this.#sessions];
    if (known.length < 5 || this.#random() < 0.3) {
      const sessionId = await client.newSession();
      this.#sessions.set(sessionId, undefined);
      return sessionId;
    }
    const [sessionId, cursor] = known[Math.floor(this.#random() * known.length)] as [string, string | undefined];
    if (this.#random() < 0.5) await client.load(sessionId, cursor);
    else await client.resume(sessionId, cursor);
    return sessionId;
  }

  async #turn(client: RawClient, sessionId: string): Promise<void> {
    const random = this.#random;
    const order = {
      label: `s${Math.floor(random() * 1e6)}-`,
      chunks: 10 + Math.floor(random() ** 3 * 5000),
      toolEvery: random() < 0.5 ? 50 : 0,
      everyMs: Math.floor(random() * 3),
    };
    const answer = client.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: JSON.stringify(order) }] });
    const fate = random();
    if (fate < 0.35) {
      // A cut in the middle of what it streams; the turn goes on.
      await Promise.race([
        answer,
        client.until('some text', () => (client.texts.get(sessionId) ?? '').length > 100, { timeoutMs: 30_000 }),
      ]);
      client.cut();
      this.cuts++;
      return;
    }
    if (fate < 0.45) client.notify('session/cancel', { sessionId });
    const { message } = await answer;
    if (message.error) return;
    this.turns++;
    const text = client.texts.get(sessionId) ?? '';
    // Of one that somebody else deletes meanwhile, what was not read yet is gone.
    const stays = this.#sessions.has(sessionId);
    const whole = stays && fate >= 0.45 && at(message, 'result', 'stopReason') === 'end_turn';
    if (whole && !text.includes(streamText(order))) {
      throw new Error(`the text of a turn is not what the agent said: ${firstDifference(text, streamText(order))}`);
    }
  }

  /** Connections end when processes do, and sessions may be gone. */
  #expected(error: unknown): boolean {
    const text = String(error);
    return /connection closed|ECONNREFUSED|ECONNRESET|socket hang up|ENOENT|-32002|interrupted|agent_unavailable|session_busy|not_persisted|EPIPE/.test(
      text,
    );
  }

  async #prune(): Promise<void> {
    if (this.#down) return;
    const { code, stderr } = await runCommand([
      'prune',
      '--store',
      this.#sidecar.store,
      '--retain',
      String(KEPT_SESSIONS),
    ]);
    if (code !== 0 && !this.#down) throw new Error(`prune: ${code} ${stderr}`);
    this.prunes++;
    const listed = await runCommand(['sessions', '--store', this.#sidecar.store, '--json']);
    const left = new Set((JSON.parse(listed.stdout) as { sessionId: string }[]).map(({ sessionId }) => sessionId));
    for (const id of this.#sessions.keys()) if (!left.has(id)) this.#sessions.delete(id);
  }

  async #killAgent(): Promise<void> {
    const agents = this.#sidecar.processes().filter((pid) => pid !== this.#sidecar.pid && isAgent(pid));
    for (const pid of agents) {
      try {
        process.kill(pid, 'SIGKILL');
        this.agentKills++;
      } catch {
        // It has just ended.
      }
    }
    await Promise.resolve();
  }

  async #after(part: number, act: () => Promise<void>): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, this.#options.seconds * 1000 * part));
    await act();
  }

  async #restartOnce(): Promise<void> {
    this.#down = this.#restart();
    await this.#down;
    this.#down = undefined;
  }

  /** A command that finds no server works on the store itself, and holds it meanwhile. */
  async #restart(): Promise<void> {
    await this.#sidecar.kill();
    await this.#pruning;
    await this.#sidecar.start();
  }

  /** Seldom: it makes the memory that the system sees smaller, too. */
  async #collect(): Promise<void> {
    await this.#down;
    const { heapMiB, externalMiB } = await liveHeapOf(this.#sidecar);
    this.kept.push(heapMiB + externalMiB);
    this.#options.report?.(`after a collection: heap ${heapMiB.toFixed(1)} MiB, outside ${externalMiB.toFixed(1)} MiB`);
  }

  async #sample(): Promise<void> {
    await this.#down;
    const { store } = this.#sidecar;
    const sample = {
      second: Math.round(this.#seconds),
      memoryMiB: Math.round(ownMemoryMiB(this.#sidecar)),
      files: openFiles(this.#sidecar),
      readers: readersOf(store, this.#sidecar.pid),
      storeMiB: Math.round(statSync(join(store, 'data.mdb')).size / 1024 / 1024),
    };
    this.samples.push(sample);
    const { second, memoryMiB, files, readers, storeMiB } = sample;
    this.#options.report?.(
      `${second} s: ${memoryMiB} MiB, ${files} files, ${readers} readers, store ${storeMiB} MiB; ` +
        `${this.turns} turns, ${this.cuts} cuts, ${this.agentKills} agents killed, ${this.prunes} prunes`,
    );
  }
}

/** Where a text stops being in another one, with what stands there instead. */
function firstDifference(text: string, part: string): string {
  let length = part.length;
  while (length > 0 && !text.includes(part.slice(0, length))) length--;
  const at = text.lastIndexOf(part.slice(0, length)) + length;
  return `after ${length} of ${part.length} characters ${JSON.stringify(text.slice(at, at + 200))}, wanted ${JSON.stringify(part.slice(length, length + 60))}`;
}

function isAgent(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'latin1').includes('agent-program');
  } catch {
    return false;
  }
}

/** What has grown: the end is compared with the middle, after the restart and the first warm-up. */
export function grown({ samples, kept }: SoakReport): string[] {
  const part = (from: number, to: number): readonly Sample[] =>
    samples.slice(Math.floor(samples.length * from), Math.ceil(samples.length * to));
  const median = (list: readonly Sample[], of: keyof Sample): number => {
    const sorted = list.map((sample) => sample[of]).sort((a, b) => a - b);
    return sorted[Math.floor(sorted.length / 2)] ?? 0;
  };
  const limits = { memoryMiB: [1.2, 25], files: [1, 12], readers: [1, 3], storeMiB: [1.25, 16] } as const;
  const check = (of: string, middle: number, end: number, [times, plus]: readonly [number, number]): string[] =>
    end <= middle * times + plus ? [] : [`${of}: ${middle} in the middle, ${end} at the end`];
  const [keptBefore = 0, keptAfter = Number.NaN] = kept;
  return [
    ...check('kept after a collection', keptBefore, keptAfter, [1.1, 5]),
    ...(Object.keys(limits) as (keyof typeof limits)[]).flatMap((of) =>
      check(of, median(part(0.4, 0.65), of), median(part(0.85, 1), of), limits[of]),
    ),
  ];
}
