/**
 * Sessions that a session has announced as its children. They have no log of their own: what they say is in their
 * parent's, and the row of that tells who they are.
 */
import type { SessionRow } from '../storage/event-log.ts';
import { isTaken } from '../storage/session-index.ts';
import type { House } from './house.ts';

/** The public id of the session that announced a child under this id; undefined when that is not known. */
export function parentIdOf({ log, registry }: Pick<House, 'log' | 'registry'>, childId: unknown): string | undefined {
  if (typeof childId !== 'string' || isTaken(log, childId)) return undefined;
  let newest: SessionRow | undefined;
  // Some agents count from 1 in each process: of two the latest is meant.
  for (const row of log.rows()) {
    if (row.tombstone || !row.children?.includes(childId)) continue;
    if (!newest || row.updatedAt >= newest.updatedAt) newest = row;
  }
  if (newest) return newest.sessionId;
  // Not in a row: announced just now, imported, or by an earlier version.
  for (const { sessionId, deleting, state } of registry.open()) {
    if (!deleting && state.children.has(childId)) return sessionId;
  }
  return undefined;
}

/** Why a method does not take a child's id, and what to do instead. */
export function childRefusal(method: string, childId: string, parentId: string): string {
  return `${childId} is a child of the session ${parentId}: ${method} goes there; session/load and session/resume take a child's id`;
}
