/**
 * From the start of the sidecar to the first `session/load`, with many sessions in the store. Prints one line of JSON.
 *
 *   node dist/test/bench/restart-time.js [sessions] [events a session]
 */
import { readFileSync } from 'node:fs';
import { encodeRecord } from '../../storage/event-codec.ts';
import type { SessionRow } from '../../storage/event-log.ts';
import { openLmdbEventLog } from '../../storage/lmdb-event-log.ts';
import { UPDATE_KINDS } from '../../protocol/v1/update-kinds.ts';
import { stringifyWire } from '../../protocol/wire-text.ts';
import { Scope } from '../support/scope.ts';
import { streamAgentCommand } from '../support/scripted-agent.ts';
import { Sidecar } from '../support/sidecar.ts';
import { tempDir } from '../support/temp-dir.ts';

const PER_COMMIT = 500;

async function fill(store: string, sessions: number, events: number): Promise<void> {
  const log = await openLmdbEventLog(store);
  const extras = { boot: 'bench0', kind: UPDATE_KINDS.agent_message_chunk };
  const update = { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: 'a message of some length' } };
  const record = encodeRecord({ type: 'update', time: 1, payload: stringifyWire(update) }, extras);
  for (let from = 1; from <= sessions; from += PER_COMMIT) {
    const rows: SessionRow[] = [];
    for (let num = from; num < from + PER_COMMIT && num <= sessions; num++) {
      const sessionId = `session-${num}`;
      const time = Date.now();
      rows.push({
        sessionId,
        num,
        logId: `log${num}`,
        cwd: '/work',
        createdAt: time,
        updatedAt: time,
        bound: [`a-${num}`],
        low: 1,
      });
    }
    const appends = rows.map(({ num }) => ({
      num,
      firstSeq: 1,
      records: Array.from({ length: events }, () => record),
    }));
    const outcome = await log.commit({ rows, appends });
    if (outcome.outcome !== 'committed') throw new Error(JSON.stringify(outcome));
  }
  await log.close();
}

/** Processor time that the sidecar has used, in clock ticks of 10 ms. Linux only. */
function cpuMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return 10 * (Number(fields[11]) + Number(fields[12]));
}

async function main(): Promise<void> {
  const [sessions = 10_000, events = 20] = process.argv.slice(2).map(Number);
  const scope = new Scope();
  try {
    const store = `${tempDir(scope)}/store`;
    await fill(store, sessions, events);
    const times: number[] = [];
    const cpu: number[] = [];
    for (let n = 0; n < 5; n++) {
      const started = performance.now();
      const sidecar = await Sidecar.start(scope, { agent: streamAgentCommand(), store });
      const client = await sidecar.unix(scope);
      await client.initialize();
      await client.load(`session-${1 + Math.floor(Math.random() * sessions)}`);
      times.push(Math.round(performance.now() - started));
      cpu.push(cpuMs(sidecar.pid));
      await sidecar.kill();
    }
    times.sort((a, b) => a - b);
    cpu.sort((a, b) => a - b);
    const restartToLoadMs = { median: times[2], all: times };
    process.stdout.write(`${JSON.stringify({ sessions, events, restartToLoadMs, sidecarCpuMs: cpu[2] })}\n`);
  } finally {
    await scope.end();
  }
}

await main();
