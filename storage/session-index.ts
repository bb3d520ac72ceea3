/** The session list: newest first, filtered by working directory, in pages. */
import type { EventLog, SessionRow } from './event-log.ts';
import { idsOf } from './forgotten-ids.ts';

export interface SessionListQuestion {
  readonly rows: Iterable<SessionRow>;
  /** Only sessions of exactly this directory. */
  readonly cwd?: string | undefined;
  /** `nextCursor` of the page before, as the client sent it. */
  readonly cursor?: unknown;
  readonly limit: number;
}

export interface SessionPage {
  readonly sessions: readonly SessionRow[];
  readonly nextCursor?: string;
}

/** The place of a session in the list. A page begins after a place, so sessions that come later do not move it. */
interface Place {
  readonly updatedAt: number;
  readonly num: number;
}

const CURSOR = /^1:(\d{1,16}):(\d{1,10})$/;

/** One page of the sessions that are not deleted, or `bad_cursor` for a cursor that we did not give. */
export function listSessions(question: SessionListQuestion): SessionPage | { readonly reason: 'bad_cursor' } {
  const { rows, cwd, cursor, limit } = question;
  let after: Place | undefined;
  if (cursor !== undefined && cursor !== null) {
    after = parseCursor(cursor);
    if (!after) return { reason: 'bad_cursor' };
  }
  const found: SessionRow[] = [];
  for (const row of rows) {
    if (row.tombstone || (cwd !== undefined && row.cwd !== cwd)) continue;
    if (!after || compare(row, after) > 0) found.push(row);
  }
  found.sort(compare);
  const sessions = found.slice(0, Math.max(1, limit));
  const last = sessions.at(-1);
  return found.length > sessions.length && last ? { sessions, nextCursor: formatCursor(last) } : { sessions };
}

/**
 * The agent's session ids that stand for sessions of ours, living or deleted, also long ago: they are neither listed
 * beside ours nor imported.
 */
export function hiddenAgentSessions(log: Pick<EventLog, 'rows' | 'isForgotten'>): { has(id: string): boolean } {
  const hidden = new Set<string>();
  for (const row of log.rows()) for (const id of idsOf(row)) hidden.add(id);
  return { has: (id) => hidden.has(id) || log.isForgotten(id) };
}

/** Whether this is the id of a session, living or deleted, or was that of one long ago. */
export function isTaken(log: Pick<EventLog, 'row' | 'isForgotten'>, id: string): boolean {
  return log.row(id) !== undefined || log.isForgotten(id);
}

/** What the tombstone of a session says that an agent may have to be told of. */
export function untoldMark(row: SessionRow): Pick<SessionRow, 'untold'> {
  return row.bound.length > 0 ? { untold: 0 } : {};
}

/** Newest first; of the same millisecond the one that was made later. */
function compare(a: Place, b: Place): number {
  return b.updatedAt - a.updatedAt || b.num - a.num;
}

function formatCursor({ updatedAt, num }: Place): string {
  return Buffer.from(`1:${updatedAt}:${num}`).toString('base64url');
}

function parseCursor(cursor: unknown): Place | undefined {
  const found = typeof cursor === 'string' ? CURSOR.exec(Buffer.from(cursor, 'base64url').toString('latin1')) : null;
  return found ? { updatedAt: Number(found[1]), num: Number(found[2]) } : undefined;
}
