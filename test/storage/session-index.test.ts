import { expect, it } from 'vitest';
import type { SessionRow } from '../../storage/event-log.ts';
import { MemoryEventLog } from '../../storage/memory-event-log.ts';
import { hiddenAgentSessions, isTaken, listSessions, type SessionPage } from '../../storage/session-index.ts';
import { sessionRow } from '../support/session-row.ts';

function page(question: Parameters<typeof listSessions>[0]): SessionPage {
  const found = listSessions(question);
  if ('reason' in found) throw new Error(found.reason);
  return found;
}

const nums = (found: SessionPage): number[] => found.sessions.map((row) => row.num);

it('[SS1] the session list is newest first, of the same time the later one first', () => {
  const rows = [sessionRow(1, { updatedAt: 5 }), sessionRow(2, { updatedAt: 9 }), sessionRow(3, { updatedAt: 5 })];
  expect(nums(page({ rows, limit: 10 }))).toEqual([2, 3, 1]);
});

it('[SS1] the session list can be filtered by the exact working directory', () => {
  const rows = ['/a', '/a/b', '/a', '/A'].map((cwd, i) => sessionRow(i + 1, { cwd }));
  expect(nums(page({ rows, limit: 10, cwd: '/a' }))).toEqual([3, 1]);
  expect(nums(page({ rows, limit: 10, cwd: '/nowhere' }))).toEqual([]);
});

it('deleted sessions are not listed, closed ones are', () => {
  const rows = [sessionRow(1, { tombstone: true }), sessionRow(2, { closed: true }), sessionRow(3)];
  expect(nums(page({ rows, limit: 10 }))).toEqual([3, 2]);
});

it('[SS1] pages give every session once, also when sessions are added between them', () => {
  const rows: SessionRow[] = Array.from({ length: 25 }, (_, i) => sessionRow(i + 1, { updatedAt: 100 + (i % 7) }));
  const seen: number[] = [];
  let cursor: string | undefined;
  let pages = 0;
  do {
    const found = page({ rows, limit: 10, cursor });
    seen.push(...nums(found));
    cursor = found.nextCursor;
    rows.push(sessionRow(100 + pages++, { updatedAt: 5000 }));
  } while (cursor !== undefined);
  expect(pages).toBe(3);
  expect(seen.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 25 }, (_, i) => i + 1));
});

it('the last page has no cursor, also when it is full', () => {
  const rows = [1, 2, 3, 4].map((num) => sessionRow(num));
  const first = page({ rows, limit: 2 });
  expect(nums(first)).toEqual([4, 3]);
  expect(page({ rows, limit: 2, cursor: first.nextCursor })).toEqual({ sessions: [rows[1], rows[0]] });
});

it.each([['x'], [''], [5], [{}], ['Mjox'], [Buffer.from('1:1:1; drop').toString('base64url')]])(
  'a list cursor that we did not give is refused: %j',
  (cursor) => {
    expect(listSessions({ rows: [sessionRow(1)], limit: 5, cursor })).toEqual({ reason: 'bad_cursor' });
  },
);

it('hidden are all agent sessions that were ever ours, also those of deleted sessions, also long ago', async () => {
  const log = new MemoryEventLog();
  const rows = [
    sessionRow(1, { bound: ['a', 'b'] }),
    ...[2, 3].map((num) => sessionRow(num, { tombstone: true, bound: [`agent-${num}`] })),
  ];
  await log.commit({ appends: [], rows });
  await log.commit({ appends: [], rows: [], forgets: ['session-3'] });
  const hidden = hiddenAgentSessions(log);
  const ids = ['a', 'b', 'c', 'session-1', 'session-2', 'agent-2', 'session-3', 'agent-3', 'agent-4'];
  expect(ids.filter((id) => !hidden.has(id))).toEqual(['c', 'agent-4']);
  expect(ids.filter((id) => isTaken(log, id))).toEqual(['session-1', 'session-2', 'session-3', 'agent-3']);
});
