/** What the parts of the proxy share: made once in `server.ts`. */
import type { GroupCommit } from '../storage/group-commit.ts';
import type { EventLog } from '../storage/event-log.ts';
import type { HistoryCache } from '../storage/history-cache.ts';
import type { AgentHost } from './agent/agent-host.ts';
import type { UntoldDeletions } from './agent/untold-deletions.ts';
import type { Config } from './config.ts';
import type { Connection } from './connection.ts';
import type { Logger } from './log.ts';
import type { KeptServers } from './kept-servers.ts';
import type { Metrics } from './metrics.ts';
import type { RequestMemory } from './client-methods/request-memory.ts';
import type { Registry } from './registry.ts';
import type { Tick } from './tick.ts';
import type { Trace } from './trace/trace.ts';
import type { ColdViews } from './session/cold-view.ts';
import type { SessionTitles } from '../storage/session-title.ts';

/** `full`: no room on its disk, the sidecar tries again; `failed`: this process writes no more. */
export type StoreState = 'ok' | 'full' | 'failed';

export interface House {
  readonly config: Config;
  readonly logger: Logger;
  readonly metrics: Metrics;
  /** With `--trace` only. */
  readonly trace: Trace | undefined;
  readonly log: EventLog;
  readonly commit: GroupCommit;
  readonly history: HistoryCache;
  readonly titles: SessionTitles;
  readonly coldViews: ColdViews;
  readonly boot: string;
  readonly agentHost: AgentHost;
  readonly registry: Registry;
  readonly untold: UntoldDeletions;
  readonly connections: Set<Connection>;
  readonly tick: Tick;
  readonly requestMemory: RequestMemory;
  readonly newId: () => string;
  readonly now: () => number;
  /** Whether the store takes what is written to it. */
  readonly store: { state: StoreState };
  readonly mcpServers: KeptServers;
  /** True once the sidecar has been told to stop: no new prompts. */
  draining: boolean;
}
