/**
 * What happened since the start, as plain numbers: the code adds to them, `/metrics` reads them. Nothing here runs per
 * delta; the smallest unit that is counted is a commit, a turn, an attach.
 */
import type { CommitBatch, CommitOutcome } from '../storage/event-log.ts';

/** A counter, or a family of them by label values. */
export class Counter {
  readonly #values = new Map<string, { readonly labels: readonly string[]; count: number }>();

  /** @param known label values that are shown from the start, so that the first increase is seen as one */
  constructor(known: readonly (readonly string[])[] = [[]]) {
    for (const labels of known) this.#values.set(labels.join('\0'), { labels, count: 0 });
  }

  add(labels: readonly string[] = [], by = 1): void {
    const key = labels.join('\0');
    const found = this.#values.get(key);
    if (found) found.count += by;
    else this.#values.set(key, { labels, count: by });
  }

  values(): Iterable<{ readonly labels: readonly string[]; readonly count: number }> {
    return this.#values.values();
  }
}

/** Observations by size, as Prometheus has them: `counts[i]` of at most `bounds[i]`, the last one of any size. */
export class Histogram {
  readonly bounds: readonly number[];
  readonly counts: number[];
  sum = 0;

  constructor(bounds: readonly number[]) {
    this.bounds = bounds;
    this.counts = Array.from({ length: bounds.length + 1 }, () => 0);
  }

  observe(value: number): void {
    let at = 0;
    while (at < this.bounds.length && value > (this.bounds[at] as number)) at++;
    this.counts[at] = (this.counts[at] as number) + 1;
    this.sum += value;
  }
}

/** ACP's stop reasons, and what else ends a turn. An agent may say anything, so the rest is one. */
const STOP_REASONS = ['end_turn', 'max_tokens', 'max_turn_requests', 'refusal', 'cancelled'] as const;
const TURN_OUTCOMES = [...STOP_REASONS, 'error', 'interrupted', 'not_persisted', 'other'] as const;
const APPROVAL_OUTCOMES = ['allowed', 'rejected', 'cancelled', 'error', 'timed_out', 'interrupted'] as const;
const REPLAYS = [
  ['tail', ''],
  ['none', 'no_cursor'],
  ...['no_cursor', 'malformed', 'foreign', 'ahead', 'diverged', 'expired'].map((reason) => ['full', reason]),
] as const;
const MESSAGE_DROPS = [
  'agent_not_json_rpc',
  'agent_too_large',
  'agent_unknown_session',
  'agent_deleted_session',
  'agent_replay',
  'agent_unknown_response',
  'client_too_large',
  'not_allowed',
  'observer',
] as const;
const CONNECTION_DROPS = ['heartbeat', 'message_too_large', 'binary_frame', 'lagging'] as const;
const REFUSALS = ['token', 'origin_or_host'] as const;

export type TurnOutcome = (typeof TURN_OUTCOMES)[number];
export type ApprovalOutcome = (typeof APPROVAL_OUTCOMES)[number];
export type MessageDrop = (typeof MESSAGE_DROPS)[number];
export type ConnectionDrop = (typeof CONNECTION_DROPS)[number];

const each = (values: readonly string[]): string[][] => values.map((value) => [value]);

export class Metrics {
  readonly connections = new Counter();
  readonly refused = new Counter(each(REFUSALS));
  readonly connectionsDropped = new Counter(each(CONNECTION_DROPS));
  readonly messagesDropped = new Counter(each(MESSAGE_DROPS));
  readonly turns = new Counter(each(TURN_OUTCOMES));
  readonly approvals = new Counter(each(APPROVAL_OUTCOMES));
  readonly approvalWait = new Histogram([1, 5, 15, 60, 300, 1800, 7200, 86_400]);
  readonly replays = new Counter(REPLAYS);
  readonly commits = new Counter(each(['committed', 'not_committed', 'unknown']));
  readonly flush = new Histogram([0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5, 30]);
  readonly agentStarts = new Counter(each(['started', 'failed']));
  readonly agentRestarts = new Counter();
  readonly agentExits = new Counter(each(['code', 'error', 'signal']));
  events = 0;
  eventBytes = 0;
  #agentStarted = false;

  turnEnded(outcome: TurnOutcome): void {
    this.turns.add([outcome]);
  }

  /** @param waitedMs undefined when it was asked before this process began */
  approvalEnded(outcome: ApprovalOutcome, waitedMs: number | undefined): void {
    this.approvals.add([outcome]);
    if (waitedMs !== undefined) this.approvalWait.observe(waitedMs / 1000);
  }

  messageDropped(cause: MessageDrop): void {
    this.messagesDropped.add([cause]);
  }

  connectionDropped(cause: ConnectionDrop): void {
    this.connectionsDropped.add([cause]);
  }

  /** @param status 401 or 403 */
  connectionRefused(status: number): void {
    if (status === 401 || status === 403) this.refused.add([status === 401 ? 'token' : 'origin_or_host']);
  }

  agentStart(outcome: 'started' | 'failed'): void {
    this.agentStarts.add([outcome]);
    if (outcome === 'failed') return;
    if (this.#agentStarted) this.agentRestarts.add();
    this.#agentStarted = true;
  }

  agentExit({ code, signal }: { readonly code: number | null; readonly signal: string | null }): void {
    this.agentExits.add([signal === null ? (code === 0 ? 'code' : 'error') : 'signal']);
  }

  /** A log that counts and times what is committed to it. */
  timed(log: CommitLog, now: () => number): CommitLog {
    const settled = (batch: CommitBatch, started: number, outcome: CommitOutcome): CommitOutcome => {
      this.commits.add([outcome.outcome]);
      this.flush.observe((now() - started) / 1000);
      if (outcome.outcome !== 'committed') return outcome;
      for (const { records } of batch.appends) {
        this.events += records.length;
        for (const record of records) this.eventBytes += record.length;
      }
      return outcome;
    };
    return {
      commit: (batch) => {
        const started = now();
        return log.commit(batch).then((outcome) => settled(batch, started, outcome));
      },
    };
  }
}

interface CommitLog {
  commit(batch: CommitBatch): Promise<CommitOutcome>;
}

/** How a turn that the agent answered has ended. */
export function turnOutcome(stopReason: unknown): TurnOutcome {
  return STOP_REASONS.find((known) => known === stopReason) ?? 'other';
}
