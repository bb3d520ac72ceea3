/** `acp-sidecar daemon`: what `run` starts in the background. Not for people; its order comes on stdin. */
import { text } from 'node:stream/consumers';
import { loadConfig } from '../config.ts';
import { leaveWhenIdle } from '../daemon/daemon-duties.ts';
import type { DaemonOrder } from '../daemon/daemon-order.ts';
import { watchWaysOut } from './ways-out.ts';

export async function runDaemon(): Promise<number> {
  watchWaysOut();
  const { sources, agent, place } = JSON.parse(await text(process.stdin)) as DaemonOrder;
  const given = await loadConfig('run', { ...sources, env: process.env });
  const { storeDir, socket } = place;
  const config = { ...given, storeDir, listen: [{ kind: 'unix' as const, path: socket }], tokenFile: undefined };
  const { runServe } = await import('../server.ts');
  return runServe(config, { command: agent.command, args: [...agent.args] }, (house, stop) =>
    leaveWhenIdle(config.idleExitMs, house, stop),
  );
}
