/** The soak in small: that it runs, and that nothing fails in it. `npm run test:soak` looks for growth. */
import { expect, it } from 'vitest';
import { testScope } from '../support/scope.ts';
import { runSoak } from './soak-run.ts';

const SECONDS = Number(process.env['SOAK_SECONDS'] ?? 15);

it('clients, drops, kills and prunes at random: every turn has its text, the store is whole', {
  timeout: (SECONDS + 120) * 1000,
}, async () => {
  const report = await runSoak(testScope(), { seed: 1130, seconds: SECONDS });
  expect(report.turns).toBeGreaterThan(5);
  expect(report.cuts).toBeGreaterThan(0);
  expect(report.prunes).toBeGreaterThan(0);
  expect(report.kept.every((kept) => kept > 1) && report.kept.length).toBe(2);
  expect(report.samples.length).toBeGreaterThan(1);
  expect(report.samples.every(({ readers }) => readers < 20)).toBe(true);
});
