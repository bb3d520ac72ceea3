/** Who waits for room, and when the agent is ended for it. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { FullDisk } from '../../proxy/full-disk.ts';
import { silentLogger } from '../../proxy/log.ts';
import type { Session } from '../../proxy/session/session.ts';

const STALL_MS = 60_000;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

interface Stalling {
  readonly disk: FullDisk;
  readonly ended: string[];
}

function stalling(): Stalling {
  const ended: string[] = [];
  const disk = new FullDisk({
    logger: silentLogger(),
    connections: new Set(),
    stallMs: STALL_MS,
    now: Date.now,
    endAgent: (why) => void ended.push(why),
  });
  return { disk, ended };
}

const session = (busy: boolean): Session & { turns: { busy: boolean } } =>
  ({ sessionId: 's', turns: { busy } }) as unknown as Session & { turns: { busy: boolean } };

it('[DU11] a session that stalls later has its whole time, and the agent is ended for it', () => {
  const { disk, ended } = stalling();
  disk.stalled(session(false), 'full');
  vi.advanceTimersByTime(STALL_MS - 1000);
  disk.stalled(session(true), 'full');
  vi.advanceTimersByTime(STALL_MS - 1);
  expect(ended).toEqual([]);
  vi.advanceTimersByTime(1);
  expect(ended).toHaveLength(1);
});

it('[DU11] what still runs after another --stall is ended again; nothing is when nothing runs', () => {
  const { disk, ended } = stalling();
  const one = session(false);
  disk.stalled(one, 'full');
  vi.advanceTimersByTime(3 * STALL_MS);
  expect(ended).toEqual([]);
  one.turns.busy = true;
  vi.advanceTimersByTime(STALL_MS);
  expect(ended).toHaveLength(1);
  vi.advanceTimersByTime(STALL_MS);
  expect(ended).toHaveLength(2);
  disk.stalled(one, undefined);
  vi.advanceTimersByTime(2 * STALL_MS);
  expect(ended).toHaveLength(2);
  expect(vi.getTimerCount()).toBe(0);
});

it('it is full until every session has room', () => {
  const { disk } = stalling();
  const [one, two] = [session(false), session(false)];
  disk.stalled(one, 'full');
  disk.stalled(two, 'full');
  disk.stalled(one, undefined);
  expect(disk.full).toBe(true);
  disk.stalled(two, undefined);
  expect(disk.full).toBe(false);
});
