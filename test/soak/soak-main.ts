/** `npm run test:soak -- --minutes 30 --seed 7`. Exits with 1 when something fails or has grown. */
import { parseArgs } from 'node:util';
import { Scope } from '../support/scope.ts';
import { grown, runSoak } from './soak-run.ts';

const { values } = parseArgs({ options: { minutes: { type: 'string', default: '30' }, seed: { type: 'string' } } });
const seed = Number(values.seed ?? Date.now() % 1_000_000);
const scope = new Scope();
let failed = false;
process.stdout.write(`seed ${seed}\n`);
try {
  const report = (line: string): void => void process.stdout.write(`${line}\n`);
  const result = await runSoak(scope, { seed, seconds: Number(values.minutes) * 60, report });
  const problems = grown(result);
  for (const problem of problems) report(`grown: ${problem}`);
  failed = problems.length > 0;
  report(failed ? 'not flat' : 'flat');
} catch (error) {
  failed = true;
  process.stdout.write(`seed ${seed}: ${error instanceof Error ? error.stack : String(error)}\n`);
}
await scope.end();
process.exit(failed ? 1 : 0);
