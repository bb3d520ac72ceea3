/** What `run` tells the daemon that it starts, on its stdin: one JSON object. */
import type { ConfigSources } from '../config.ts';
import type { AgentCommand, DaemonPlace } from './daemon-place.ts';

export interface DaemonOrder {
  /** As `run` was told them; the environment is the daemon's own, which is that of this `run`. */
  readonly sources: Omit<ConfigSources, 'env'>;
  readonly agent: AgentCommand;
  readonly place: DaemonPlace;
}
