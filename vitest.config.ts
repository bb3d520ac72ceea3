import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    pool: 'forks',
    // Most of them wait for processes that they have started.
    maxWorkers: 3,
    // Real processes on a shared machine: in CI a test may show once more that it passes, and is reported as retried.
    retry: process.env['CI'] === undefined ? 0 : 1,
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});
