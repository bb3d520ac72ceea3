/** What the commands on a store have to work with, in a running server or alone, and what they share. */
import { BulkSource } from '../../storage/bulk-source.ts';
import type { CommitOutcome, EventLog, SessionRow } from '../../storage/event-log.ts';
import type { GroupCommit } from '../../storage/group-commit.ts';
import type { HistoryCache } from '../../storage/history-cache.ts';
import type { LmdbStore } from '../../storage/lmdb-event-log.ts';
import { forgettable, neededSegments, removeEvents, unneeded } from '../../storage/retention.ts';
import { untoldMark } from '../../storage/session-index.ts';
import { CommandError } from '../cli/exit-code.ts';
import type { Session } from '../session/session.ts';

/** Sessions whose events go in the same commits. */
const SWEPT_AT_ONCE = 8;

/** A running server, as the commands see it. */
export interface ServerPart {
  /** The session, opened if need be; undefined when its log cannot be read. */
  open(sessionId: string): Session | undefined;
  /** The session when it is open already. */
  opened(sessionId: string): Session | undefined;
  /** Resolves to what went wrong, if anything. */
  remove(session: Session): Promise<string | undefined>;
  /** Makes a fork at an event that may be forked at. */
  fork(session: Session, seq: number): Promise<{ readonly sessionId: string } | { readonly refused: string }>;
  status(): Record<string, unknown>;
  /** On another Unix socket, too. @throws CommandError when there can be none */
  listen(path: string): Promise<void>;
  stop(): void;
  /** It is on its way out: what takes long ends where it is. */
  stopping(): boolean;
}

export interface StoreHost {
  readonly log: LmdbStore;
  readonly commit: GroupCommit;
  readonly history: HistoryCache;
  readonly now: () => number;
  readonly server?: ServerPart;
  /** The sessions that are open in that server. */
  readonly registry?: { open(): Iterable<Pick<Session, 'row'>> };
}

/** @throws CommandError */
export function rowOf(host: StoreHost, sessionId: string): SessionRow {
  const row = host.log.row(sessionId);
  if (row && !row.tombstone) return row;
  const what = row ? 'was deleted' : 'is not in this store';
  throw new CommandError(
    'failure',
    `session ${JSON.stringify(sessionId)} ${what}`,
    '`acp-sidecar sessions` lists them',
  );
}

/** @throws CommandError when it was not committed */
export function requireCommitted(outcome: CommitOutcome): void {
  if (outcome.outcome === 'committed') return;
  const full = outcome.outcome === 'not_committed';
  const hint = full ? 'free space on its disk and try again' : 'the store must be opened anew';
  throw new CommandError(full ? 'failure' : 'store_failed', `not written: ${outcome.message}`, hint);
}

/** Takes sessions, their events and their histories away, all at once: a few at a time. @throws CommandError */
export async function removeSessions(host: StoreHost, rows: readonly SessionRow[]): Promise<void> {
  await Promise.all(rows.map((row) => endSession(host, row)));
  await sweep(
    host,
    rows.map(({ num }) => num),
  );
}

async function endSession(host: StoreHost, row: SessionRow): Promise<void> {
  const session = host.server?.open(row.sessionId);
  // It is being deleted already, and cannot be opened any more.
  if (!session && host.server?.opened(row.sessionId)) return;
  if (host.server && session) {
    const problem = await host.server.remove(session);
    if (problem !== undefined) throw new CommandError('failure', `not written: ${problem}`);
  } else {
    const bulk = new BulkSource(host.commit, row.num, host.log.lastSeq(row.num));
    requireCommitted(await bulk.run({ row: { ...row, tombstone: true, ...untoldMark(row) } }));
  }
  host.history.forget(row.num);
}

/**
 * Resolves when what was being made when it was called is in the log: a fork is known to need its parent's events only
 * then. Group commit serves whoever waits longest first.
 */
async function inTheLog(commit: GroupCommit): Promise<void> {
  // The sessions that were touched in this tick have offered what they have by then.
  await new Promise((resolve) => setImmediate(resolve));
  // No event has this place.
  requireCommitted(await new BulkSource(commit, 0, 0).run({ removals: [{ num: 0, from: 0, to: 0 }] }));
}

type Swept = Pick<StoreHost, 'commit' | 'registry'> & { readonly log: EventLog };

/**
 * Frees what sessions no longer need and no fork reads; what they kept of parents that are deleted, too. In small
 * commits, behind everybody else's.
 */
export async function sweep(host: Swept, nums: readonly number[]): Promise<void> {
  await inTheLog(host.commit);
  const byNum = new Map([...host.log.rows()].map((row) => [row.num, row]));
  const rows = new Set<SessionRow>();
  for (const num of nums) {
    for (let row = byNum.get(num); row; row = row.base && byNum.get(row.base.num)) {
      if (row.num === num || row.tombstone) rows.add(row);
    }
  }
  await sweepRows(host, [...rows]);
}

async function sweepRows(host: Swept, rows: readonly SessionRow[]): Promise<void> {
  const { log, commit } = host;
  const needed = neededSegments(log);
  for (let at = 0; at < rows.length; at += SWEPT_AT_ONCE) {
    const some = rows.slice(at, at + SWEPT_AT_ONCE).map(async (row) => {
      const removals = unneeded(log, row, needed);
      return removeEvents(new BulkSource(commit, row.num, log.lastSeq(row.num)), removals);
    });
    for (const outcome of await Promise.all(some)) requireCommitted(outcome);
  }
  await forgetOldest(host);
}

const forgetting = new WeakSet<EventLog>();

/** Rows of deleted sessions must not become more and more. What is not committed is left for the next time. */
async function forgetOldest({ log, commit, registry }: Swept): Promise<void> {
  if (forgetting.has(log)) return;
  forgetting.add(log);
  try {
    for (let committed = true; committed; ) {
      const open = new Set(Array.from(registry?.open() ?? [], ({ row }) => row.num));
      const forgets = forgettable(log, open);
      if (forgets.length === 0) return;
      committed = (await new BulkSource(commit, 0, 0).run({ forgets })).outcome === 'committed';
    }
  } finally {
    forgetting.delete(log);
  }
}

/** Frees the events of session numbers that no row names. */
export async function removeOrphans(host: StoreHost, nums: readonly number[]): Promise<void> {
  for (const num of nums) {
    const last = host.log.lastSeq(num);
    requireCommitted(await removeEvents(new BulkSource(host.commit, num, last), [{ num, from: 1, to: last }]));
  }
}

/** Frees what earlier deletions and cuts have left: a server may end in the middle of one. */
export async function sweepAll(host: Swept): Promise<void> {
  await inTheLog(host.commit);
  await sweepRows(
    host,
    [...host.log.rows()].filter(({ tombstone, low }) => tombstone || low > 1),
  );
}
