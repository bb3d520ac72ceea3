/** `FUZZ_SECONDS` and `FUZZ_SEED` change how long and which; `npm run test:fuzz -- --minutes 10` is the long run. */
import { expect, it } from 'vitest';
import { testScope } from '../support/scope.ts';
import { runFuzz } from './fuzz-run.ts';

const SECONDS = Number(process.env['FUZZ_SECONDS'] ?? 40);
const SEED = Number(process.env['FUZZ_SEED'] ?? 1130);

it('T25: whatever clients and agent send: no crash, no hang, no byte of another session, memory flat', {
  timeout: (SECONDS + 120) * 1000,
}, async () => {
  const until = performance.now() + SECONDS * 1000;
  const report = await runFuzz(testScope(), { seed: SEED, goOn: () => performance.now() < until });
  expect(report.rounds).toBeGreaterThan(5);
  expect(report.fromAgent).toBeGreaterThan(100);
  const half = Math.floor(report.memory.length / 2);
  const early = Math.max(...report.memory.slice(0, half));
  const late = Math.max(...report.memory.slice(half));
  expect(late, `memory in MiB: ${report.memory.map(Math.round).join(' ')}`).toBeLessThan(early * 1.5 + 40);
});
