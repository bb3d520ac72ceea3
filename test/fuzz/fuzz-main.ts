/** `npm run test:fuzz -- --minutes 10 --seed 7`: the long run. Exits with 1 when something is wrong, and says with what seed. */
import { parseArgs } from 'node:util';
import { Scope } from '../support/scope.ts';
import { runFuzz } from './fuzz-run.ts';

const { values } = parseArgs({ options: { minutes: { type: 'string', default: '10' }, seed: { type: 'string' } } });
const seed = Number(values.seed ?? Date.now() % 1_000_000);
const until = performance.now() + Number(values.minutes) * 60_000;
const scope = new Scope();
let failed = false;
process.stdout.write(`seed ${seed}\n`);
try {
  const report = await runFuzz(scope, {
    seed,
    goOn: () => performance.now() < until,
    report: (line) => process.stdout.write(`${line}\n`),
  });
  const quarter = Math.ceil(report.memory.length / 4);
  const second = Math.max(...report.memory.slice(quarter, 2 * quarter));
  const last = Math.max(...report.memory.slice(-quarter));
  const { rounds, fromClients, fromAgent, agentLives } = report;
  process.stdout.write(
    `${rounds} rounds, ${fromClients} client and ${fromAgent} agent messages, ${agentLives} agent processes\n`,
  );
  process.stdout.write(
    `memory: at most ${second.toFixed(0)} MiB in the second quarter, ${last.toFixed(0)} MiB in the last\n`,
  );
  failed = last > second * 1.25 + 30;
} catch (error) {
  failed = true;
  process.stdout.write(`seed ${seed}: ${error instanceof Error ? error.stack : String(error)}\n`);
}
await scope.end();
process.exit(failed ? 1 : 0);
