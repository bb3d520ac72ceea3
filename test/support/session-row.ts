import type { SessionRow } from '../../storage/event-log.ts';

/** A plain row for session number `num`. */
export function sessionRow(num: number, changes: Partial<SessionRow> = {}): SessionRow {
  return {
    sessionId: `session-${num}`,
    num,
    logId: `log${num}`,
    cwd: '/work',
    createdAt: 1000 + num,
    updatedAt: 1000 + num,
    bound: [],
    low: 1,
    ...changes,
  };
}
