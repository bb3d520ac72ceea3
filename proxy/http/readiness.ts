/** Whether new work can be taken: the store can be written, the agent runs or can be started, nobody is leaving. */
import type { House } from '../house.ts';

export interface Readiness {
  readonly ready: boolean;
  readonly store: 'ok' | 'full' | 'failed';
  readonly agent: 'running' | 'stopped' | 'failed';
  readonly draining: boolean;
}

export function readiness(house: House): Readiness {
  const store = house.store.state === 'ok' && house.log.lowOnSpace ? 'full' : house.store.state;
  const agent = house.agentHost.state;
  const { draining } = house;
  return { ready: store === 'ok' && agent !== 'failed' && !draining, store, agent, draining };
}
