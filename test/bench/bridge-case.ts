/** What `run` and `connect` cost: the start when the daemon lives, and what they add to a delta. */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { AcpClient } from './acp-client.ts';
import { type BenchCase, lineOf, median, mediansOf, notes, noteOf, type Sample, units } from './samples.ts';
import { nowNs, parseScript } from './script.ts';
import { agentCommand, SIDECAR } from './server-process.ts';
import { StreamCheck } from './stream-check.ts';
import { withDirectory, withServer } from './workplace.ts';

const PACED = 'paced 500 every 2';
const FULL = 'full 100000';
const STARTS = 5;
const ALL = ['direct', 'connect', 'run'] as const;

/** The delta's way: paced for the latency, then at full speed. */
async function stream(client: AcpClient): Promise<Sample> {
  const sessionId = await client.newSession();
  client.check = new StreamCheck(parseScript(PACED));
  await client.prompt(sessionId, PACED);
  client.check.assertComplete();
  const p50Us = median(client.check.latenciesNs) / 1e3;
  client.check = new StreamCheck(parseScript(FULL));
  const startNs = nowNs();
  await client.prompt(sessionId, FULL);
  client.check.assertComplete();
  return { p50Us, deltasPerSecond: 100_000 / ((nowNs() - startNs) / 1e9) };
}

function behindConnect(): Promise<Sample> {
  return withServer('sidecar', async (server) => {
    const client = await AcpClient.overProcess([process.execPath, SIDECAR, 'connect', server.url], process.env);
    const sample = await stream(client);
    await client.end();
    return sample;
  });
}

function behindRun(): Promise<Sample> {
  return withDirectory(async (directory) => {
    const env = { ...process.env, XDG_RUNTIME_DIR: directory };
    const store = join(directory, 'store');
    const options = ['--store', store, '--idle-exit', '1s', '--log-level', 'warn'];
    const command = [process.execPath, SIDECAR, 'run', ...options, '--', ...agentCommand()];
    const first = await AcpClient.overProcess(command, env);
    const startsMs: number[] = [];
    while (startsMs.length < STARTS) {
      const startNs = nowNs();
      const client = await AcpClient.overProcess(command, env);
      startsMs.push((nowNs() - startNs) / 1e6);
      await client.end();
    }
    const sample = await stream(first);
    await first.end();
    // The daemon leaves by itself; its directory must be there until then.
    await sleep(2500);
    return { ...sample, startMs: median(startsMs) };
  });
}

function direct(): Promise<Sample> {
  return withServer('sidecar', async (server) => {
    const client = await AcpClient.connect(server.url);
    const sample = await stream(client);
    client.close();
    return sample;
  });
}

export const bridgeCase: BenchCase = {
  name: 'bridge',
  variants: ALL,
  run: (variant) => (variant === 'direct' ? direct() : variant === 'connect' ? behindConnect() : behindRun()),
  lines: (samples) => [
    lineOf(
      'start of run to its initialize, the daemon lives',
      samples.median('run', 'startMs'),
      { atMost: 300 },
      units.millis,
    ),
    ...(['connect', 'run'] as const).map((variant) =>
      lineOf(
        `paced delta, p50 added by ${variant}`,
        samples.paired('p50Us', [variant, 'direct'], (bridged, straight) => bridged - straight),
        { atMost: 300 },
        units.micros,
        notes(
          mediansOf(samples, 'p50Us', ['direct', variant], units.micros),
          noteOf('at full speed', samples.median(variant, 'deltasPerSecond'), units.rate),
        ),
      ),
    ),
  ],
};
