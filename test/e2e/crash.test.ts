import { expect, it } from 'vitest';
import { killAgainAndAgain } from '../support/crash-check.ts';
import { testScope } from '../support/scope.ts';

const KILLS = 50;

it(`[DU5] [OR2] kill -9, ${KILLS} times: every eventId that anyone saw is in the log, without a gap`, {
  timeout: 150_000,
}, async () => {
  const { sawText, settled, diverged } = await killAgainAndAgain(testScope(), KILLS);
  // If nothing had been seen, nothing would have been shown.
  expect(sawText).toBeGreaterThan(KILLS / 2);
  expect(settled).toBeGreaterThan(KILLS / 2);
  expect(diverged).toBeGreaterThan(0);
});
