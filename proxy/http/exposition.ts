/** The text format that Prometheus scrapes, version 0.0.4. Numbers are read when it asks. */
import { boundHits } from '../bounds.ts';
import type { House } from '../house.ts';
import { METRICS, type MetricName, type MetricSpec } from '../metric-table.ts';
import type { Counter, Histogram } from '../metrics.ts';
import { VERSION } from '../version.ts';
import { readiness } from './readiness.ts';

export const EXPOSITION_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

type Samples = readonly (readonly [labels: readonly string[], value: number])[];

export function exposition(house: House): string {
  const { metrics } = house;
  const now = readiness(house);
  const text: Readonly<Record<MetricName, string>> = {
    acp_sidecar_info: lines('acp_sidecar_info', [[[VERSION], 1]]),
    acp_sidecar_ready: one('acp_sidecar_ready', now.ready ? 1 : 0),
    ...clientMetrics(house),
    acp_sidecar_connections_total: counted('acp_sidecar_connections_total', metrics.connections),
    acp_sidecar_connections_refused_total: counted('acp_sidecar_connections_refused_total', metrics.refused),
    acp_sidecar_connections_dropped_total: counted('acp_sidecar_connections_dropped_total', metrics.connectionsDropped),
    acp_sidecar_bound_hits_total: lines(
      'acp_sidecar_bound_hits_total',
      Object.entries(boundHits).map(([bound, hits]) => [[bound], hits]),
    ),
    acp_sidecar_messages_dropped_total: counted('acp_sidecar_messages_dropped_total', metrics.messagesDropped),
    ...sessionMetrics(house),
    acp_sidecar_turns_total: counted('acp_sidecar_turns_total', metrics.turns),
    acp_sidecar_approvals_total: counted('acp_sidecar_approvals_total', metrics.approvals),
    acp_sidecar_approval_wait_seconds: histogram('acp_sidecar_approval_wait_seconds', metrics.approvalWait),
    acp_sidecar_replays_total: counted('acp_sidecar_replays_total', metrics.replays),
    acp_sidecar_events_appended_total: one('acp_sidecar_events_appended_total', metrics.events),
    acp_sidecar_event_bytes_total: one('acp_sidecar_event_bytes_total', metrics.eventBytes),
    acp_sidecar_commits_total: counted('acp_sidecar_commits_total', metrics.commits),
    acp_sidecar_flush_seconds: histogram('acp_sidecar_flush_seconds', metrics.flush),
    acp_sidecar_store_bytes: one('acp_sidecar_store_bytes', house.log.bytes()),
    acp_sidecar_store_state: lines(
      'acp_sidecar_store_state',
      (['ok', 'full', 'failed'] as const).map((state) => [[state], now.store === state ? 1 : 0]),
    ),
    acp_sidecar_agent_up: one('acp_sidecar_agent_up', house.agentHost.link ? 1 : 0),
    acp_sidecar_agent_starts_total: counted('acp_sidecar_agent_starts_total', metrics.agentStarts),
    acp_sidecar_agent_restarts_total: counted('acp_sidecar_agent_restarts_total', metrics.agentRestarts),
    acp_sidecar_agent_exits_total: counted('acp_sidecar_agent_exits_total', metrics.agentExits),
    ...processMetrics(),
  };
  return (Object.keys(METRICS) as MetricName[]).map((name) => text[name]).join('');
}

function clientMetrics(house: House) {
  const roles = { controller: 0, observer: 0 };
  let outbox = 0;
  let most = 0;
  for (const { role, transport } of house.connections) {
    roles[role]++;
    const { queuedBytes } = transport.outbox;
    outbox += queuedBytes;
    most = Math.max(most, queuedBytes);
  }
  let append = 0;
  for (const { order } of house.registry.open()) append += order.queuedBytes + (order.openRun?.length ?? 0);
  return {
    acp_sidecar_clients: lines(
      'acp_sidecar_clients',
      Object.entries(roles).map(([role, count]) => [[role], count]),
    ),
    acp_sidecar_queue_bytes: lines('acp_sidecar_queue_bytes', [
      [['append'], append],
      [['outbox'], outbox],
      [['agent_stdin'], house.agentHost.stdinPendingBytes],
    ]),
    acp_sidecar_outbox_max_bytes: one('acp_sidecar_outbox_max_bytes', most),
  };
}

function sessionMetrics(house: House) {
  let open = 0;
  let running = 0;
  let pending = 0;
  for (const { turns, approvals } of house.registry.open()) {
    open++;
    if (turns.current) running++;
    pending += approvals.pending;
  }
  let stored = 0;
  for (const row of house.log.rows()) if (!row.tombstone) stored++;
  return {
    acp_sidecar_sessions: one('acp_sidecar_sessions', stored),
    acp_sidecar_sessions_open: one('acp_sidecar_sessions_open', open),
    acp_sidecar_turns_running: one('acp_sidecar_turns_running', running),
    acp_sidecar_approvals_pending: one('acp_sidecar_approvals_pending', pending),
  };
}

function processMetrics() {
  const { user, system } = process.cpuUsage();
  return {
    process_resident_memory_bytes: one('process_resident_memory_bytes', process.memoryUsage.rss()),
    process_cpu_seconds_total: one('process_cpu_seconds_total', (user + system) / 1e6),
    process_start_time_seconds: one('process_start_time_seconds', performance.timeOrigin / 1000),
  };
}

function one(name: MetricName, value: number): string {
  return lines(name, [[[], value]]);
}

function counted(name: MetricName, counter: Counter): string {
  return lines(
    name,
    [...counter.values()].map(({ labels, count }) => [labels, count]),
  );
}

function lines(name: MetricName, samples: Samples): string {
  const spec: MetricSpec = METRICS[name];
  const rows = samples.map(([values, value]) => `${name}${labelsText(spec.labels ?? [], values)} ${value}\n`);
  return head(name) + rows.join('');
}

function histogram(name: MetricName, { bounds, counts, sum }: Histogram): string {
  let below = 0;
  const rows = counts.map((count, at) => {
    below += count;
    return `${name}_bucket{le="${bounds[at] ?? '+Inf'}"} ${below}\n`;
  });
  return `${head(name)}${rows.join('')}${name}_sum ${sum}\n${name}_count ${below}\n`;
}

function head(name: MetricName): string {
  const { help, type } = METRICS[name];
  return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
}

function labelsText(names: readonly string[], values: readonly string[]): string {
  if (names.length === 0) return '';
  const escaped = (value: string): string =>
    value.replace(/[\\"\n]/g, (found) => (found === '\n' ? '\\n' : `\\${found}`));
  return `{${names.map((name, at) => `${name}="${escaped(values[at] ?? '')}"`).join(',')}}`;
}
