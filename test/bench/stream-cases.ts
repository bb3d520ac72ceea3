/** Live streams and starts, beside the two bridges. */
import { AcpClient } from './acp-client.ts';
import { commitTimesNs } from './commit-time.ts';
import {
  type BenchCase,
  type Line,
  lineOf,
  median,
  mediansOf,
  noteOf,
  notes,
  type Sample,
  type Samples,
  units,
} from './samples.ts';
import { CELL_BYTES, nowNs, parseScript, type Plan } from './script.ts';
import { type ServerKind, type ServerProcess, storeBytes } from './server-process.ts';
import { StreamCheck } from './stream-check.ts';
import { withDirectory, withServer } from './workplace.ts';

/** The clients of one session: the one that prompts and those that attached to it. */
async function attach(server: ServerProcess, plan: Plan, count: number) {
  const driver = await AcpClient.connect(server.url);
  const sessionId = await driver.newSession();
  const clients = [driver];
  while (clients.length < count) {
    const client = await AcpClient.connect(server.url);
    await client.load(sessionId);
    clients.push(client);
  }
  const checks = clients.map((client) => (client.check = new StreamCheck(plan)));
  return { driver, sessionId, checks };
}

/** Runs a script once in a fresh server; every client must have received all of it, the prompting one before its response. */
function stream(kind: ServerKind, script: string, clientCount = 1): Promise<Sample> {
  const plan = parseScript(script);
  return withServer(kind, async (server, store) => {
    const { driver, sessionId, checks } = await attach(server, plan, clientCount);
    const cpuBeforeNs = server.cpuNs();
    const startNs = nowNs();
    await driver.prompt(sessionId, script);
    checks[0]?.assertComplete();
    await Promise.all(checks.map((check) => check.ended));
    for (const check of checks) check.assertComplete();
    const cpuNs = server.cpuNs() - cpuBeforeNs;
    const deltas = plan.groups * plan.deltas;
    const lines = plan.groups * (plan.deltas + plan.events);
    const seconds = (Math.max(...checks.map((check) => check.completeAtNs)) - startNs) / 1e9;
    return {
      deltasPerSecond: deltas / seconds,
      linesPerSecond: lines / seconds,
      cpuUsPerDelta: cpuNs / 1e3 / deltas,
      cpuUsPerDelivery: cpuNs / 1e3 / lines / clientCount,
      messages: checks[0]?.messages ?? 0,
      p50Us: median(checks[0]?.latenciesNs ?? []) / 1e3,
      peakMiB: server.memoryMiB().peak,
      anonymousMiB: server.memoryMiB().anonymous,
      storeTimesText: kind === 'sidecar' ? storeBytes(store) / (deltas * CELL_BYTES) : 0,
    };
  });
}

export function peakLine(samples: Samples, what: string): Line {
  const own = noteOf('anonymous at the end', samples.median('sidecar', 'anonymousMiB'), units.mebibytes);
  return lineOf(`peak RSS, ${what}`, samples.median('sidecar', 'peakMiB'), { atMost: 110 }, units.mebibytes, own);
}

const ALL = ['sidecar', 'cork', 'plain'] as const;
const FULL = 'full 100000';

const full: BenchCase = {
  name: 'full',
  variants: ALL,
  run: (variant) => stream(variant as ServerKind, FULL),
  lines: (samples) => [
    lineOf(
      'full speed to 1 client, of cork',
      samples.paired('deltasPerSecond', ['sidecar', 'cork'], (sidecar, cork) => sidecar / cork),
      { atLeast: 1.2 },
      units.times,
      notes(
        mediansOf(samples, 'deltasPerSecond', ALL, units.rate),
        noteOf('messages to the client', samples.median('sidecar', 'messages'), units.count),
      ),
    ),
    lineOf(
      'CPU per delta',
      samples.median('sidecar', 'cpuUsPerDelta'),
      { atMost: 2 },
      units.micros,
      mediansOf(samples, 'cpuUsPerDelta', ALL, units.micros),
    ),
    lineOf('disk, of the text', samples.median('sidecar', 'storeTimesText'), { atMost: 1.3 }, units.times),
    peakLine(samples, '1 client'),
  ],
};

const FANOUT_CLIENTS = 8;

const fanout: BenchCase = {
  name: 'fanout',
  variants: ['sidecar'],
  run: () => stream('sidecar', FULL, FANOUT_CLIENTS),
  lines: (samples) => [
    lineOf(
      `full speed to each of ${FANOUT_CLIENTS} clients`,
      samples.median('sidecar', 'deltasPerSecond'),
      { atLeast: 250_000 },
      units.rate,
      noteOf('CPU per delivery', samples.median('sidecar', 'cpuUsPerDelivery'), units.micros),
    ),
    peakLine(samples, `${FANOUT_CLIENTS} clients`),
  ],
};

const paced: BenchCase = {
  name: 'paced',
  variants: ALL,
  run: (variant) => stream(variant as ServerKind, 'paced 500 every 2'),
  lines: (samples) => [
    lineOf(
      'paced delta, p50 added to plain',
      samples.paired('p50Us', ['sidecar', 'plain'], (sidecar, plain) => sidecar - plain),
      { atMost: 20 },
      units.micros,
      mediansOf(samples, 'p50Us', ALL, units.micros),
    ),
  ],
};

const TOOL_EVENTS = 60;
const TOOL_EVERY_MS = 20;

async function commit(): Promise<Sample> {
  const timesNs = await withDirectory((directory) => commitTimesNs(directory, TOOL_EVENTS, TOOL_EVERY_MS));
  return { p50Us: median(timesNs) / 1e3 };
}

const tool: BenchCase = {
  name: 'tool',
  variants: ['sidecar', 'plain', 'commit'],
  run: (variant) =>
    variant === 'commit' ? commit() : stream(variant as ServerKind, `tool ${TOOL_EVENTS} every ${TOOL_EVERY_MS}`),
  lines: (samples) => [
    lineOf(
      'durable tool event, p50 added to plain, of a commit',
      samples.paired('p50Us', ['sidecar', 'plain', 'commit'], (sidecar, plain, one) => (sidecar - plain) / one),
      { atMost: 1.3 },
      units.times,
      mediansOf(samples, 'p50Us', ['sidecar', 'plain', 'commit'], units.micros),
    ),
  ],
};

const mixed: BenchCase = {
  name: 'mixed',
  variants: ALL,
  run: (variant) => stream(variant as ServerKind, 'mixed 20:2 2000'),
  lines: (samples) => [
    lineOf(
      '20 deltas + 2 tool events at full speed, of plain',
      samples.paired('linesPerSecond', ['sidecar', 'plain'], (sidecar, plain) => sidecar / plain),
      { atLeast: 1.5 },
      units.times,
      mediansOf(samples, 'linesPerSecond', ALL, units.rate),
    ),
    peakLine(samples, 'mixed'),
  ],
};

const ready: BenchCase = {
  name: 'ready',
  variants: ['sidecar', 'plain'],
  run: (variant) =>
    withServer(variant as ServerKind, (server) =>
      Promise.resolve({ readyMs: (server.readyAtNs - server.startedAtNs) / 1e6 }),
    ),
  lines: (samples) => [
    lineOf(
      'ready, added to plain',
      samples.paired('readyMs', ['sidecar', 'plain'], (sidecar, plain) => sidecar - plain),
      { atMost: 120 },
      units.millis,
      mediansOf(samples, 'readyMs', ['sidecar', 'plain'], units.millis),
    ),
  ],
};

export const streamCases: readonly BenchCase[] = [full, fanout, paced, tool, mixed, ready];
