import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    setupFiles: ['test/support/properties.ts'],
    pool: 'forks',
    // Most of them wait for processes that they have started.
    maxWorkers: 3,
    // For machines that stand still now and then; what is tried twice is printed. Off for what looks for rare faults.
    retry: Number(process.env['TEST_RETRY'] ?? 0),
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});
