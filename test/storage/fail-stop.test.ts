import { describe, expect, it, vi } from 'vitest';
import { FailStop } from '../../storage/fail-stop.ts';

/** An error in the shape of LMDB's. */
function commitError(code: number, message: string): Error {
  const cause = Object.assign(new Error(message), { code });
  const rejected = Promise.reject(cause);
  rejected.catch(() => undefined);
  return Object.assign(new Error('Commit failed (see commitError for details)'), { commitError: rejected });
}

const noSpace = () => Promise.reject(commitError(28, 'No space left on device'));
const ioError = () => Promise.reject(commitError(5, 'Input/output error'));

function failStop(ballast = 0, timeoutMs = 30_000, full = false): FailStop {
  let left = ballast;
  const reserve = { giveUp: () => left-- > 0, diskIsFull: () => full, hasRoomFor: () => true };
  return new FailStop(reserve, timeoutMs);
}

describe('fail-stop', () => {
  it('a full disk frees the ballast and tries the same batch once more', async () => {
    let calls = 0;
    const rules = failStop(1);
    expect(await rules.run(() => (++calls === 1 ? noSpace() : Promise.resolve(true)))).toEqual({
      outcome: 'committed',
    });
    expect(calls).toBe(2);
  });

  it('[DU4] a full disk without ballast is not_committed, and the next commit is tried', async () => {
    const rules = failStop();
    const outcome = { outcome: 'not_committed', cause: 'no_space', message: 'No space left on device' };
    expect(await rules.run(noSpace)).toEqual(outcome);
    expect(rules.failed).toBeUndefined();
    expect(await rules.run(() => Promise.resolve(true))).toEqual({ outcome: 'committed' });
  });

  it('[DU6] what has no room is not even tried; the ballast makes room for it', async () => {
    let room = 100;
    let ballast = true;
    const giveUp = (): boolean => {
      if (ballast) room += 1000;
      const had = ballast;
      ballast = false;
      return had;
    };
    const rules = new FailStop({ giveUp, diskIsFull: () => false, hasRoomFor: (bytes) => bytes <= room }, 30_000);
    const tried: string[] = [];
    const write = (name: string) => (): Promise<boolean> => {
      tried.push(name);
      return Promise.resolve(true);
    };
    expect(await rules.run(write('small'), 100)).toEqual({ outcome: 'committed' });
    expect(await rules.run(write('with the ballast'), 1000)).toEqual({ outcome: 'committed' });
    expect((await rules.run(write('too large'), 2000)).outcome).toBe('not_committed');
    expect(tried).toEqual(['small', 'with the ballast']);
  });

  it('an I/O error on a full disk is a full disk: the write was cut short', async () => {
    const rules = failStop(0, 30_000, true);
    expect((await rules.run(ioError)).outcome).toBe('not_committed');
    expect(rules.failed).toBeUndefined();
    const other = await rules.run(() => Promise.reject(commitError(-30795, 'MDB_PANIC')));
    expect(other.outcome).toBe('unknown');
  });

  it('[DU4] any other error is unknown for ever', async () => {
    for (const fault of [ioError, () => Promise.reject(new Error('plain')), () => Promise.resolve(false)]) {
      const rules = failStop(1);
      const outcome = await rules.run(fault);
      expect(outcome.outcome).toBe('unknown');
      expect(rules.failed).toBe(outcome);
    }
  });

  it('[DU4] a commit that does not settle in time is unknown, and what comes of it later is not written again', async () => {
    vi.useFakeTimers();
    try {
      const rules = failStop(5, 30_000);
      let calls = 0;
      let reject: (error: Error) => void = () => undefined;
      const running = rules.run(() => {
        calls++;
        return new Promise((_resolve, refuse) => (reject = refuse));
      });
      await vi.advanceTimersByTimeAsync(29_999);
      expect(rules.failed).toBeUndefined();
      await vi.advanceTimersByTimeAsync(1);
      expect(await running).toEqual({ outcome: 'unknown', message: 'a commit did not settle in 30 s' });
      reject(commitError(28, 'No space left on device'));
      await vi.advanceTimersByTimeAsync(10);
      expect(calls).toBe(1);
    } finally {
      vi.useRealTimers();
    }
  });
});
