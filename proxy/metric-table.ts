/**
 * Every metric of `/metrics`: names, types, labels and what they mean. README.md has the same table; a test compares
 * them, and another one compares it with what a running sidecar shows.
 */
export interface MetricSpec {
  readonly type: 'counter' | 'gauge' | 'histogram';
  /** One line. */
  readonly help: string;
  readonly labels?: readonly string[];
}

export const METRICS = {
  acp_sidecar_info: { type: 'gauge', help: 'Always 1; the version is its label.', labels: ['version'] },
  acp_sidecar_ready: { type: 'gauge', help: '1 when /readyz says 200, else 0.' },
  acp_sidecar_clients: { type: 'gauge', help: 'Connections that are open, by role.', labels: ['role'] },
  acp_sidecar_connections_total: { type: 'counter', help: 'Connections that were accepted.' },
  acp_sidecar_connections_refused_total: {
    type: 'counter',
    help: 'Connections and scrapes without the right token, Origin or Host, by cause.',
    labels: ['cause'],
  },
  acp_sidecar_connections_dropped_total: {
    type: 'counter',
    help: 'Connections that the sidecar ended, by cause.',
    labels: ['cause'],
  },
  acp_sidecar_bound_hits_total: {
    type: 'counter',
    help: 'How often a limit was met, by limit; SECURITY.md and proxy/bounds.ts tell what happens there.',
    labels: ['bound'],
  },
  acp_sidecar_messages_dropped_total: {
    type: 'counter',
    help: 'Messages that were not passed on or not stored, by cause.',
    labels: ['cause'],
  },
  acp_sidecar_sessions: { type: 'gauge', help: 'Sessions in the store.' },
  acp_sidecar_sessions_open: { type: 'gauge', help: 'Sessions that are held in memory.' },
  acp_sidecar_turns_running: { type: 'gauge', help: 'Turns that are with the agent or about to be.' },
  acp_sidecar_turns_total: { type: 'counter', help: 'Turns that have ended, by outcome.', labels: ['outcome'] },
  acp_sidecar_approvals_pending: { type: 'gauge', help: 'Approvals that wait for an answer.' },
  acp_sidecar_approvals_total: {
    type: 'counter',
    help: 'Approvals that are over, by outcome.',
    labels: ['outcome'],
  },
  acp_sidecar_approval_wait_seconds: {
    type: 'histogram',
    help: 'Time from the question of the agent to the end of the approval.',
  },
  acp_sidecar_replays_total: {
    type: 'counter',
    help: 'Answered session/load and session/resume, by mode and by why the cursor was not used.',
    labels: ['mode', 'reason'],
  },
  acp_sidecar_events_appended_total: { type: 'counter', help: 'Events that were made durable.' },
  acp_sidecar_event_bytes_total: { type: 'counter', help: 'Bytes of these events.' },
  acp_sidecar_commits_total: {
    type: 'counter',
    help: 'Commits of the store, by outcome.',
    labels: ['outcome'],
  },
  acp_sidecar_flush_seconds: { type: 'histogram', help: 'Time of a commit until it is safe from a power loss.' },
  acp_sidecar_queue_bytes: {
    type: 'gauge',
    help: 'Bytes that wait, by queue: append (for a commit), outbox (for clients), agent_stdin.',
    labels: ['queue'],
  },
  acp_sidecar_outbox_max_bytes: { type: 'gauge', help: 'Bytes that wait for the client with the most of them.' },
  acp_sidecar_store_bytes: { type: 'gauge', help: 'Size of the files of the store.' },
  acp_sidecar_store_state: {
    type: 'gauge',
    help: '1 for the state that the store is in: ok, full (no room on its disk) or failed.',
    labels: ['state'],
  },
  acp_sidecar_agent_up: { type: 'gauge', help: '1 when the process of the agent runs, else 0.' },
  acp_sidecar_agent_starts_total: { type: 'counter', help: 'Starts of the agent, by outcome.', labels: ['outcome'] },
  acp_sidecar_agent_restarts_total: { type: 'counter', help: 'Starts of the agent after the first one.' },
  acp_sidecar_agent_exits_total: {
    type: 'counter',
    help: 'Ends of the agent process: code (exit code 0), error (another exit code) or signal.',
    labels: ['how'],
  },
  process_resident_memory_bytes: { type: 'gauge', help: 'Resident memory of the sidecar.' },
  process_cpu_seconds_total: { type: 'counter', help: 'User and system CPU time of the sidecar.' },
  process_start_time_seconds: { type: 'gauge', help: 'Start of the sidecar, in seconds since 1970.' },
} as const satisfies Readonly<Record<string, MetricSpec>>;

export type MetricName = keyof typeof METRICS;
