/**
 * Every queue of the sidecar: its limit and what happens there. `boundHits` counts how often each limit was met; the
 * metrics export it. Limits that are options name the option.
 */

interface BoundSpec {
  readonly limit: string;
  readonly policy: string;
}

export const BOUNDS = {
  client_outbox: {
    limit: '--client-buffer-bytes waiting for one client',
    policy: 'the client stays at its position and is served from the log when its socket drains',
  },
  client_reading: {
    limit: 'answers over --client-buffer-bytes that a client does not read',
    policy: 'nothing more is read from that client until it has taken them',
  },
  client_owed: {
    limit: '1024 messages that sessions owe a client which does not read',
    policy: 'nothing more is read from that client until it has taken them',
  },
  request_memory: {
    limit: '16 MiB of answers that are kept for requests that come again, 10 min each',
    policy: 'the oldest are forgotten',
  },
  client_lagging: {
    limit: 'messages of the agent that no log holds, over --client-buffer-bytes plus --max-message-bytes',
    policy: 'the client is closed with 1013 and can come back',
  },
  client_requests: {
    limit: '1024 unanswered requests of one client',
    policy: 'further ones are answered with an error',
  },
  agent_stdin: {
    limit: '1 MiB that the agent has not taken from its stdin',
    policy: 'nothing is read from clients until it has; after 60 s the agent is restarted',
  },
  append_queue: {
    limit: '512 KiB that no commit holds, over all sessions',
    policy: "the agent's stdout is not read until half of it is stored",
  },
  message_size: {
    limit: '--max-message-bytes',
    policy: 'the message is dropped alone; who can be told is told',
  },
  approvals: {
    limit: '256 pending approvals of one session',
    policy: 'the agent gets an error for further ones',
  },
  agent_requests: {
    limit: '256 unanswered requests of the agent to the clients of one session',
    policy: 'the agent gets an error for further ones',
  },
  shown_terminals: {
    limit: '1 MiB of what the tool calls of one session show that show terminals, and always the newest',
    policy: 'what those terminals print is not added to the oldest',
  },
  queued_prompts: {
    limit: '64 prompts waiting in one session',
    policy: 'further ones are refused with session_busy',
  },
  early_updates: {
    limit: '16 MiB of updates that come before the response that names their session',
    policy: 'further ones are dropped and counted',
  },
  kept_servers: {
    limit:
      '16 MiB of `mcpServers` that are kept for the next time that their sessions are bound, and the newest of any size',
    policy:
      'the oldest are forgotten; a client that names them is told in `notApplied`, when the session lives without them',
  },
  attachments: {
    limit: '1024 sessions attached by one connection',
    policy: 'further ones are refused',
  },
  sessions: {
    limit: '--max-open-sessions in memory',
    policy: 'those that nobody uses are closed, the longest unused first, and opened again from the log on demand',
  },
  connections: {
    limit: '--max-connections',
    policy: 'HTTP 503; a Unix socket is closed',
  },
  handshakes: {
    limit: '256 connections that are not admitted yet, 10 s each',
    policy: 'closed',
  },
  address_rate: {
    limit: '50 failed attempts of one address, 5 forgiven a second; not counted with --insecure-plaintext',
    policy: 'closed before anything is read',
  },
  heartbeat: {
    limit: '--heartbeat, missed twice',
    policy: 'the connection is closed with 4408',
  },
} as const satisfies Readonly<Record<string, BoundSpec>>;

export type BoundName = keyof typeof BOUNDS;

export const BOUND_NAMES = Object.keys(BOUNDS) as BoundName[];

/** How often each limit was met in this process. */
export const boundHits: Record<BoundName, number> = Object.fromEntries(
  BOUND_NAMES.map((name): [BoundName, number] => [name, 0]),
) as Record<BoundName, number>;

export function boundHit(name: BoundName): void {
  boundHits[name]++;
}

export const MAX_OWED = 1024;
export const REQUEST_MEMORY_BYTES = 16 * 1024 * 1024;
export const MAX_CLIENT_REQUESTS = 1024;
export const MAX_PENDING_APPROVALS = 256;
export const MAX_AGENT_REQUESTS = 256;
export const MAX_QUEUED_PROMPTS = 64;
/** Ids of child sessions that are remembered; for more of them their parent is looked up each time. */
export const MAX_CHILDREN = 10_000;
export const MAX_EARLY_BYTES = 16 * 1024 * 1024;
export const KEPT_SERVERS_BYTES = 16 * 1024 * 1024;
export const SHOWN_TERMINALS_BYTES = 1024 * 1024;
export const MAX_ATTACHMENTS = 1024;
export const MAX_HANDSHAKES = 256;
export const HANDSHAKE_MS = 10_000;
export const ADDRESS_BURST = 50;
export const ADDRESS_PER_SECOND = 5;
/** Uncommitted bytes over all sessions from which the agent's stdout is not read. */
export const UNCOMMITTED_BYTES = 512 * 1024;
export const STDIN_STUCK_MS = 60_000;
