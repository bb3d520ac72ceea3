/**
 * `npm run test:scale`: 1,000 sessions, 1,000 idle clients and 200 that stream, on one sidecar; prints what that costs and
 * how long others wait meanwhile. Exits with 1 when a stream is not whole or a probe waits longer than a second.
 */
import { readFileSync } from 'node:fs';
import { cpus } from 'node:os';
import type { RawClient } from '../support/raw-client.ts';
import { Scope } from '../support/scope.ts';
import { streamAgentCommand } from '../support/scripted-agent.ts';
import { Sidecar } from '../support/sidecar.ts';
import { openFiles, ownMemoryMiB } from '../support/sidecar-facts.ts';
import { streamText } from '../support/stream-order.ts';

const SESSIONS = Number(process.env['SCALE_SESSIONS'] ?? 1000);
const IDLE = Number(process.env['SCALE_IDLE'] ?? 1000);
const STREAMING = Number(process.env['SCALE_STREAMING'] ?? 200);
/** One batch of 4 chunks every 100 ms a session: 40 chunks a second, a fast model. */
const ORDER = { chunks: 400, batch: 4, everyMs: 100 };
const SLOWEST_PROBE_MS = 1000;
const STREAM_MS = 180_000;

const say = (line: string): void => void process.stdout.write(`${line}\n`);

function cpuSeconds(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/^.*\) /, '')
    .split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

function quantile(values: readonly number[], of: number): string {
  const sorted = [...values].sort((a, b) => a - b);
  return `${(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * of))] ?? 0).toFixed(1)} ms`;
}

async function timed(run: () => Promise<unknown>): Promise<number> {
  const started = performance.now();
  await run();
  return performance.now() - started;
}

/** Runs `make` for each number, a few at a time. */
async function each<T>(count: number, make: (i: number) => Promise<T>): Promise<T[]> {
  const made: T[] = [];
  for (let i = 0; i < count; i += 25) {
    made.push(...(await Promise.all(Array.from({ length: Math.min(25, count - i) }, (_, j) => make(i + j)))));
  }
  return made;
}

async function connect(sidecar: Sidecar, scope: Scope): Promise<RawClient> {
  const client = await sidecar.webSocket(scope);
  await client.initialize({ capabilities: {} });
  return client;
}

async function main(scope: Scope): Promise<boolean> {
  const sidecar = await Sidecar.start(scope, { agent: streamAgentCommand(), args: ['--log-level', 'warn'] });
  const state = (what: string): void =>
    say(`${what}: ${ownMemoryMiB(sidecar).toFixed(0)} MiB, ${openFiles(sidecar)} files`);
  say(`${cpus().length} cores, Node ${process.version}`);
  state('empty');
  const makers = await each(5, () => connect(sidecar, scope));
  const sessions: string[] = [];
  const made = await timed(async () => {
    sessions.push(...(await each(SESSIONS, (i) => (makers[i % makers.length] as RawClient).newSession())));
  });
  for (const maker of makers) maker.close();
  state(`${SESSIONS} sessions (${(made / SESSIONS).toFixed(1)} ms each)`);
  let idle: RawClient[] = [];
  const attached = await timed(async () => {
    idle = await each(IDLE, async (i) => {
      const client = await connect(sidecar, scope);
      await client.load(sessions[i % SESSIONS] as string);
      return client;
    });
  });
  state(`${IDLE} idle clients attached (${(attached / IDLE).toFixed(1)} ms each, tests included)`);
  const streaming = await each(STREAMING, async (i) => {
    const client = await connect(sidecar, scope);
    await client.load(sessions[i] as string);
    return client;
  });
  const probe = await connect(sidecar, scope);
  const probeSession = await probe.newSession();
  const [pings, turns]: [number[], number[]] = [[], []];
  const cpuBefore = cpuSeconds(sidecar.pid);
  const streams = streaming.map((client, i) => {
    const text = JSON.stringify({ ...ORDER, label: `s${i}-` });
    client.sendMessage({
      id: 'stream',
      method: 'session/prompt',
      params: { sessionId: sessions[i], prompt: [{ type: 'text', text }] },
    });
    return client.until('the end of its stream', ({ message }) => message.id === 'stream', { timeoutMs: STREAM_MS });
  });
  const progress = { done: false };
  const all = Promise.all(streams).then(() => (progress.done = true));
  let most = 0;
  const wall = await timed(async () => {
    while (!progress.done) {
      pings.push(await timed(() => probe.request('_sidecar/ping')));
      turns.push(await timed(() => probe.prompt(probeSession, '{"label":"p","chunks":1}')));
      most = Math.max(most, ownMemoryMiB(sidecar));
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    await all;
  });
  const cpu = cpuSeconds(sidecar.pid) - cpuBefore;
  const chunks = STREAMING * ORDER.chunks;
  say(
    `${STREAMING} streams: ${chunks} chunks in ${(wall / 1000).toFixed(1)} s, ${((cpu / wall) * 100_000).toFixed(0)} % of a core, at most ${most.toFixed(0)} MiB`,
  );
  say(
    `probe meanwhile: ping ${quantile(pings, 0.5)} median, ${quantile(pings, 0.99)} at 99 %; whole turn ${quantile(turns, 0.5)} median, ${quantile(turns, 0.99)} at 99 %`,
  );
  const broken = streaming.filter(
    (client, i) => client.texts.get(sessions[i] as string) !== streamText({ ...ORDER, label: `s${i}-` }),
  );
  const watching = idle.filter(
    (client, i) =>
      i < STREAMING && client.texts.get(sessions[i] as string) !== streamText({ ...ORDER, label: `s${i}-` }),
  );
  say(`streams that are not whole: ${broken.length} at their clients, ${watching.length} at those who watch`);
  state('after');
  return broken.length === 0 && watching.length === 0 && Math.max(...pings) < SLOWEST_PROBE_MS;
}

const scope = new Scope();
let good = false;
try {
  good = await main(scope);
} catch (error) {
  say(error instanceof Error ? (error.stack ?? error.message) : String(error));
}
await scope.end();
process.exit(good ? 0 : 1);
