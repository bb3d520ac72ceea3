/** What the commands on a store have to work with, in a running server or alone, and what they share. */
import { BulkSource } from '../../storage/bulk-source.ts';
import type { CommitOutcome, EventLog, SessionRow } from '../../storage/event-log.ts';
import type { GroupCommit } from '../../storage/group-commit.ts';
import type { HistoryCache } from '../../storage/history-cache.ts';
import type { LmdbStore } from '../../storage/lmdb-event-log.ts';
import { neededSegments, removeEvents, unneeded } from '../../storage/retention.ts';
import { CommandError } from '../cli/exit-code.ts';
import type { Session } from '../session/session.ts';

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

/** Takes a session, its events and its history away. @throws CommandError */
export async function removeSession(host: StoreHost, row: SessionRow): Promise<void> {
  const session = host.server?.open(row.sessionId);
  // It is being deleted already, and cannot be opened any more.
  if (!session && host.server?.opened(row.sessionId)) return;
  if (host.server && session) {
    const problem = await host.server.remove(session);
    if (problem !== undefined) throw new CommandError('failure', `not written: ${problem}`);
  } else {
    const bulk = new BulkSource(host.commit, row.num, host.log.lastSeq(row.num));
    requireCommitted(await bulk.run({ row: { ...row, tombstone: true } }));
  }
  host.history.forget(row.num);
  await sweep(host, row.num);
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

/** Frees what a session no longer needs and no fork reads. */
export async function sweep(
  host: { readonly log: EventLog; readonly commit: GroupCommit },
  num: number,
): Promise<void> {
  await inTheLog(host.commit);
  const row = [...host.log.rows()].find((candidate) => candidate.num === num);
  if (!row) return;
  const removals = unneeded(host.log, row, neededSegments(host.log));
  requireCommitted(await removeEvents(new BulkSource(host.commit, num, host.log.lastSeq(num)), removals));
}

/** Frees the events of session numbers that no row names. */
export async function removeOrphans(host: StoreHost, nums: readonly number[]): Promise<void> {
  for (const num of nums) {
    const last = host.log.lastSeq(num);
    requireCommitted(await removeEvents(new BulkSource(host.commit, num, last), [{ num, from: 1, to: last }]));
  }
}

/** Frees what earlier deletions and cuts have left: a server may end in the middle of one. */
export async function sweepAll(host: StoreHost): Promise<void> {
  await inTheLog(host.commit);
  const needed = neededSegments(host.log);
  for (const row of host.log.rows()) {
    if (!row.tombstone && row.low === 1) continue;
    const removals = unneeded(host.log, row, needed);
    if (removals.length === 0) continue;
    requireCommitted(await removeEvents(new BulkSource(host.commit, row.num, host.log.lastSeq(row.num)), removals));
  }
}
