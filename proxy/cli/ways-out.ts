/** Whatever ends this process, short of SIGKILL, ends the agents and all they started. */
import { constants } from 'node:os';
import { isatty } from 'node:tty';
import { isDamage } from '../../storage/store-error.ts';
import { endAllGroups, killAllGroups } from '../agent/agent-process.ts';
import { exitCode } from './exit-code.ts';

const SIGNALS = ['SIGTERM', 'SIGINT'] as const;
/** What an agent gets to end by itself when the sidecar is told to leave at once. */
const HURRIED_GRACE_MS = 500;

function leave(signal: NodeJS.Signals, graceMs: number): void {
  void endAllGroups(graceMs).finally(() => process.exit(128 + constants.signals[signal]));
}

/**
 * The server handles the first signal and drains. The second one, and one that comes before the server listens for
 * signals, ends the agents and leaves; the third does not even wait for them.
 */
function leaveOnImpatience(): void {
  let signals = 0;
  for (const signal of SIGNALS) {
    process.on(signal, () => {
      signals++;
      if (signals === 1 && process.listenerCount(signal) > 1) return;
      leave(signal, signals > 2 ? 0 : HURRIED_GRACE_MS);
    });
  }
  // A server that runs reads its files again; before that, the terminal is gone.
  process.on('SIGHUP', () => {
    if (process.listenerCount('SIGHUP') === 1) leave('SIGHUP', HURRIED_GRACE_MS);
  });
}

let failing = false;

function failOnUncaught(error: unknown): void {
  // Leaving is under way, and what it says may itself fail.
  if (failing) return;
  failing = true;
  const err = error instanceof Error ? (error.stack ?? error.message) : String(error);
  const line = { level: 60, time: Date.now(), pid: process.pid, err, msg: 'uncaught error; leaving' };
  process.stderr.write(`${JSON.stringify(line)}\n`);
  void endAllGroups(HURRIED_GRACE_MS).finally(() =>
    process.exit(exitCode(isDamage(error) ? 'store_failed' : 'failure')),
  );
}

/** Tells whether the terminal is gone that this process had when this was called. */
export function terminalWatch(): () => boolean {
  const terminals = [0, 1, 2].filter((fd) => isatty(fd));
  return () => terminals.length > 0 && !terminals.some((fd) => isatty(fd));
}

export function watchWaysOut(): void {
  // Whoever read what is said here may go; that ends no agent.
  for (const output of [process.stdout, process.stderr])
    output.removeAllListeners('error').on('error', () => undefined);
  process.on('exit', killAllGroups);
  process.on('uncaughtException', failOnUncaught);
  process.on('unhandledRejection', failOnUncaught);
  leaveOnImpatience();
}
