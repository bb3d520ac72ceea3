/**
 * `--agent-idle`: an agent in which nothing runs is stopped after a while and comes back with the next request that
 * needs it. One that cannot restore its sessions is never stopped.
 */
import type { House } from '../house.ts';
import { capabilitiesOf } from './agent-host.ts';
import { canRestore } from './binding.ts';

const LOOKS = 4;
const LONGEST_LOOK_MS = 10_000;

export function watchIdle(house: House, idleMs: number): NodeJS.Timeout {
  const { agentHost, registry, config, now } = house;
  let busyAt = now();
  const look = (): void => {
    const busy = [...registry.open()].some(
      ({ turns, approvals, clientRequests, binding }) =>
        turns.busy || approvals.pending > 0 || clientRequests.pending > 0 || binding !== undefined,
    );
    const { link, storedAnswer } = agentHost;
    if (busy || (link?.pending ?? 0) > 0) busyAt = now();
    if (!link || storedAnswer === undefined || now() - Math.max(busyAt, agentHost.lastActivity) < idleMs) return;
    const capabilities = capabilitiesOf(storedAnswer);
    if (config.restore.some((way) => canRestore(capabilities, way))) agentHost.stopIdle();
  };
  return setInterval(look, Math.min(LONGEST_LOOK_MS, Math.max(10, idleMs / LOOKS))).unref();
}
