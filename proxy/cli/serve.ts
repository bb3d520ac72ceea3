/** `acp-sidecar serve`: the process around the server, and that no agent outlives it. */
import { constants } from 'node:os';
import { endAllGroups, killAllGroups } from '../agent/agent-process.ts';
import type { Config } from '../config.ts';
import { exitCode } from './exit-code.ts';

const SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const;
/** What an agent gets to end by itself when the sidecar is told to leave at once. */
const HURRIED_GRACE_MS = 500;

/**
 * The server handles the first signal and drains. The second one, and one that comes before the server listens for
 * signals, ends the agent and leaves.
 */
function leaveOnImpatience(): void {
  let signals = 0;
  for (const signal of SIGNALS) {
    process.on(signal, () => {
      signals++;
      if (signals === 1 && process.listenerCount(signal) > 1) return;
      const code = 128 + constants.signals[signal];
      void endAllGroups(signals > 2 ? 0 : HURRIED_GRACE_MS).finally(() => process.exit(code));
    });
  }
}

function failOnUncaught(error: unknown): void {
  process.stderr.write(
    `${JSON.stringify({ level: 60, time: Date.now(), pid: process.pid, msg: 'uncaught error', err: error instanceof Error ? error.stack : String(error) })}\n`,
  );
  void endAllGroups(HURRIED_GRACE_MS).finally(() => process.exit(exitCode('failure')));
}

export async function serveAgent(config: Config, agent: { command: string; args: string[] }): Promise<number> {
  process.on('exit', killAllGroups);
  process.on('uncaughtException', failOnUncaught);
  process.on('unhandledRejection', failOnUncaught);
  leaveOnImpatience();
  const { runServe } = await import('../server.ts');
  return runServe(config, agent);
}
