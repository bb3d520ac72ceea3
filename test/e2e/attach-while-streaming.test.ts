import { describe, expect, it } from 'vitest';
import { attachWhileStreaming } from '../support/attach-check.ts';
import { testScope } from '../support/scope.ts';

describe('200 clients attach while an agent streams at full speed', () => {
  it.each([
    { name: 'text alone', toolEvery: 0, chunks: 80_000 },
    { name: 'text and tool calls', toolEvery: 200, chunks: 50_000 },
  ])('[RN6] [OR4] $name: each sees every character exactly once', async ({ toolEvery, chunks }) => {
    const during = await attachWhileStreaming(testScope(), { rounds: 4, perRound: 25, chunks, toolEvery });
    // If the stream were over before most of them came, this would show nothing.
    expect(during).toBeGreaterThan(50);
  });
});
