/** What a client waits for that comes back: a whole session, its tail, and a sidecar that was killed. */
import { setTimeout as sleep } from 'node:timers/promises';
import { AcpClient } from './acp-client.ts';
import { type BenchCase, lineOf, median, noteOf, type Sample, units } from './samples.ts';
import { nowNs, parseScript } from './script.ts';
import { ServerProcess } from './server-process.ts';
import { StreamCheck } from './stream-check.ts';
import { peakLine } from './stream-cases.ts';
import { withServer } from './workplace.ts';

const EVENTS = 20_000;
const FILL = `mixed 0:2 ${EVENTS / 2}`;
const PLAN = parseScript(FILL);
const TAIL_EVENTS = 10;
const FULL_REPLAYS = 3;
const TAIL_REPLAYS = 10;

interface Replay {
  readonly ms: number;
  readonly firstMs: number;
}

/** One `session/load` on a connection of its own, from the request to the response, with everything it must bring. */
async function replay(url: string, sessionId: string, check: StreamCheck, afterEventId?: string): Promise<Replay> {
  const client = await AcpClient.connect(url);
  client.check = check;
  const startNs = nowNs();
  await client.load(sessionId, afterEventId);
  const ms = (nowNs() - startNs) / 1e6;
  client.close();
  check.assertComplete();
  return { ms, firstMs: (check.firstAtNs - startNs) / 1e6 };
}

async function fill(url: string): Promise<{ sessionId: string; nearEnd: string }> {
  const client = await AcpClient.connect(url);
  const sessionId = await client.newSession();
  client.check = new StreamCheck(PLAN, { markEvent: EVENTS - TAIL_EVENTS - 1 });
  await client.prompt(sessionId, FILL);
  client.check.assertComplete();
  client.close();
  return { sessionId, nearEnd: client.check.markedEventId };
}

/** Kills the server while another session streams; the time until the first session is replayed by the next one. */
async function killedToLoadedMs(server: ServerProcess, store: string, sessionId: string): Promise<number> {
  const client = await AcpClient.connect(server.url);
  const other = await client.newSession();
  client.check = new StreamCheck(parseScript('paced 100000 every 2'));
  const interrupted = client.prompt(other, 'paced 100000 every 2').catch(() => undefined);
  while (client.check.seenDeltas < 20) await sleep(2);
  const killedNs = nowNs();
  server.kill();
  const next = await ServerProcess.start('sidecar', store);
  await replay(next.url, sessionId, new StreamCheck(PLAN));
  const ms = (nowNs() - killedNs) / 1e6;
  await interrupted;
  return ms;
}

function run(): Promise<Sample> {
  return withServer('sidecar', async (server, store) => {
    const { sessionId, nearEnd } = await fill(server.url);
    const full: Replay[] = [];
    while (full.length < FULL_REPLAYS) full.push(await replay(server.url, sessionId, new StreamCheck(PLAN)));
    const tail: Replay[] = [];
    while (tail.length < TAIL_REPLAYS) {
      const check = new StreamCheck(PLAN, { firstEvent: EVENTS - TAIL_EVENTS });
      tail.push(await replay(server.url, sessionId, check, nearEnd));
    }
    const { peak, anonymous } = server.memoryMiB();
    return {
      eventsPerSecond: EVENTS / (median(full.map(({ ms }) => ms)) / 1e3),
      firstMs: median(full.map(({ firstMs }) => firstMs)),
      tailMs: median(tail.map(({ ms }) => ms)),
      peakMiB: peak,
      anonymousMiB: anonymous,
      killedMs: await killedToLoadedMs(server, store, sessionId),
    };
  });
}

export const replayCase: BenchCase = {
  name: 'replay',
  variants: ['sidecar'],
  run,
  lines: (samples) => [
    lineOf(
      `full replay of ${EVENTS} events`,
      samples.median('sidecar', 'eventsPerSecond'),
      { atLeast: 250_000 },
      units.rate,
      noteOf('first message after', samples.median('sidecar', 'firstMs'), units.millis),
    ),
    lineOf(
      `tail replay of the last ${TAIL_EVENTS} events`,
      samples.median('sidecar', 'tailMs'),
      { atMost: 2 },
      units.millis,
    ),
    lineOf(
      'kill -9 to a full replay by the next process',
      samples.median('sidecar', 'killedMs'),
      { atMost: 500 },
      units.millis,
    ),
    peakLine(samples, 'replay'),
  ],
};
