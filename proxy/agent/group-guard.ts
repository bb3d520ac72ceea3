/**
 * Ends an agent's group when this process dies without a word (`kill -9`, out of memory). A shell of its own session holds
 * the other end of a pipe: a line on it means that the group is gone, its end without one that we are.
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import type { Socket } from 'node:net';
import type { Logger } from '../log.ts';

/** $1 is the group. SIGKILL comes 2 s after SIGTERM, as when an agent is ended in good order. */
const SCRIPT = `read -r line && exit
kill -TERM -$1 || exit
tries=0
while [ $tries -lt 20 ]; do
  sleep 0.1
  kill -0 -$1 || exit
  tries=$((tries + 1))
done
kill -KILL -$1`;

/** Returns what lets the guard go: nothing of the group runs any more. Without a shell there is no guard. */
export function guardGroup(pgid: number, log: Logger): () => void {
  const child = spawn('/bin/sh', ['-c', SCRIPT, 'acp-sidecar-guard', String(pgid)], {
    cwd: '/',
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  }) as ChildProcessByStdio<Socket, null, null>;
  child.on('error', (error) => log.warn({ err: error.message }, 'no guard; a kill -9 leaves the agent behind'));
  child.stdin.on('error', () => undefined);
  child.unref();
  child.stdin.unref();
  return () => child.stdin.end('\n');
}
