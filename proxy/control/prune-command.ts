/**
 * `prune`, and what a server does by itself: whole idle sessions first, then the beginnings of long ones. A session that
 * is open in the server is changed through its own order; its clients keep what they have not seen yet.
 */
import { BulkSource } from '../../storage/bulk-source.ts';
import type { SessionRow } from '../../storage/event-log.ts';
import { limitsNothing, prunedRecord, type Retention, SessionSizes, sharedUpTo, sizesOf } from '../../storage/prune.ts';
import { type Cut, findCut, sessionsToPrune } from '../../storage/retention-plan.ts';
import { foldLog } from '../session/open-session.ts';
import type { Session } from '../session/session.ts';
import { removeSessions, requireCommitted, type StoreHost, sweep, sweepAll } from './store-host.ts';

const ROW_WAIT_MS = 10;
const ROW_WAITS = 3000;
const REMOVED_AT_ONCE = 16;

export interface PruneOrder {
  readonly retention: Retention;
  /** Only this session. */
  readonly row?: SessionRow | undefined;
  readonly dryRun: boolean;
  /** The server is about to end. */
  readonly stopped?: () => boolean;
}

/** Something that went, or would go. */
export type Pruned =
  | { readonly sessionId: string; readonly pruned: 'session'; readonly events: number }
  | { readonly sessionId: string; readonly pruned: 'events'; readonly events: number; readonly low: number };

export async function prune(host: StoreHost, order: PruneOrder, told: (pruned: Pruned) => void): Promise<void> {
  const { log } = host;
  const { retention, row: only, dryRun, stopped = () => false } = order;
  const gone = limitsNothing(retention.sessions) ? new Set<number>() : await pruneSessions(host, order, told);
  if (limitsNothing(retention.events)) return;
  for (const row of only ? [only] : [...log.rows()]) {
    if (stopped()) return;
    if (row.tombstone || gone.has(row.num)) continue;
    const cut = await cutOf(host, row, retention);
    if (!cut) continue;
    told({ sessionId: row.sessionId, pruned: 'events', events: cut.low - row.low, low: cut.low });
    if (!dryRun) await cutSession(host, row, cut);
  }
  // A fork that was cut may have been the last that needed its parent's events.
  if (!dryRun) await sweepAll(host);
}

/** Whole sessions. Returns their numbers. */
async function pruneSessions(host: StoreHost, order: PruneOrder, told: (pruned: Pruned) => void): Promise<Set<number>> {
  const { log, now } = host;
  const { retention, row: only, dryRun, stopped = () => false } = order;
  const gone = new Set<number>();
  let going: SessionRow[] = [];
  const remove = async (): Promise<void> => {
    const rows = going;
    going = [];
    const events = rows.map((row) => log.lastSeq(row.num) - row.low + 1);
    if (!dryRun) await removeSessions(host, rows);
    for (const [i, { sessionId }] of rows.entries()) told({ sessionId, pruned: 'session', events: events[i] ?? 0 });
  };
  const sessions = await sizesOf(log, new SessionSizes(log), retention.sessions, (row) => isIdle(host, row));
  for (const row of sessionsToPrune(sessions, retention.sessions, now())) {
    // Asked again: much may have happened since.
    if (stopped()) return gone;
    if ((only && row.num !== only.num) || !isIdle(host, row)) continue;
    gone.add(row.num);
    going.push(row);
    if (going.length === REMOVED_AT_ONCE) await remove();
  }
  if (going.length > 0) await remove();
  return gone;
}

function isIdle(host: StoreHost, row: SessionRow): boolean {
  const session = host.server?.opened(row.sessionId);
  if (session) return session.clients.size === 0 && !session.turns.busy && session.approvals.pending === 0;
  const folded = foldLog(host.log, row);
  if ('error' in folded) return false;
  if (folded.state.openTurns.size > 0) return false;
  for (const { state } of folded.state.approvals.values()) if (state === 'pending') return false;
  return true;
}

function cutOf(host: StoreHost, row: SessionRow, { events }: Retention): Promise<Cut | undefined> {
  const session = host.server?.opened(row.sessionId);
  const upTo = slowest(session, host.log.lastSeq(row.num));
  return findCut(host.log, row, events, { after: sharedUpTo(host.log, row), upTo, now: host.now() });
}

/** The event up to which everybody on the session has been served. */
function slowest(session: Session | undefined, last: number): number {
  let seq = last;
  for (const attachment of session?.clients.values() ?? []) seq = Math.min(seq, attachment.position.seq);
  return seq;
}

/** The row keeps its `base`: forks of this session that were made before the cut read the grandparent through it. */
async function cutSession(host: StoreHost, row: SessionRow, cut: Cut): Promise<void> {
  const { log, commit, now } = host;
  if (sharedUpTo(log, row) >= cut.low) return;
  const bulk = new BulkSource(commit, row.num, log.lastSeq(row.num));
  const removal = { num: row.num, from: cut.low, to: cut.low, pruned: prunedRecord(cut, now()) };
  if (!host.server) {
    requireCommitted(await bulk.run({ row: { ...row, low: cut.low }, removals: [removal] }));
  } else {
    // The record first: whoever replays over it before the row has changed is told nothing new by it.
    const session = host.server.open(row.sessionId);
    if (!session || slowest(session, cut.low) < cut.low) return;
    requireCommitted(await bulk.run({ removals: [removal] }));
    session.order.pruned(cut.low);
    if (slowest(session, cut.low) < cut.low || host.server.opened(row.sessionId) !== session) return;
    session.setRow({ low: cut.low });
    for (let i = 0; log.row(row.sessionId)?.low !== cut.low; i++) {
      if (i > ROW_WAITS) return;
      await new Promise((resolve) => setTimeout(resolve, ROW_WAIT_MS));
    }
  }
  await sweep(host, [row.num]);
}

/** For people, or a line of JSON. */
export function pruneLine(pruned: Pruned, dryRun: boolean, json: boolean): string {
  if (json) return JSON.stringify({ ...pruned, ...(dryRun && { dryRun }) });
  const what =
    pruned.pruned === 'session' ? `${pruned.events} events, all of it` : `${pruned.events} events before ${pruned.low}`;
  return `${dryRun ? 'would go: ' : ''}${pruned.sessionId}: ${what}`;
}
