/**
 * A really full disk: a small tmpfs, where the tests may mount one. Elsewhere `group-commit.test.ts` and
 * `fail-stop.test.ts` cover the same with injected outcomes.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { CommitBatch, EventLog } from '../../storage/event-log.ts';
import { openLmdbEventLog } from '../../storage/lmdb-event-log.ts';
import { freeBytes } from '../../storage/store-space.ts';
import { type Scope, testScope } from '../support/scope.ts';
import { tempDir } from '../support/temp-dir.ts';
import { waitFor } from '../support/wait-for.ts';

const MIB = 1024 * 1024;

/** A file system of `bytes`; undefined where we may not mount. */
function smallDisk(scope: Scope, bytes: number): string | undefined {
  const dir = tempDir(scope);
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${bytes},mode=700`, 'tmpfs', dir]);
  if (mounted.status !== 0) return undefined;
  scope.defer(() => spawnSync('umount', ['-l', dir]));
  return dir;
}

function fillDisk(dir: string): string {
  const path = join(dir, 'filler');
  const file = Buffer.alloc(64 * 1024, 1);
  try {
    for (;;) writeFileSync(path, file, { flag: 'a' });
  } catch {
    return path;
  }
}

function batch(log: EventLog, bytes: number): CommitBatch {
  return { appends: [{ num: 1, firstSeq: log.lastSeq(1) + 1, records: [Buffer.alloc(bytes, 7)] }], rows: [] };
}

/** Commits until the disk is full; the outcome that said so. */
async function commitUntilFull(log: EventLog, bytes: number): Promise<unknown> {
  for (let i = 0; i < 2000; i++) {
    const outcome = await log.commit(batch(log, bytes));
    if (outcome.outcome !== 'committed') return outcome;
  }
  throw new Error('the disk did not become full');
}

function count(log: EventLog): number {
  let seen = 0;
  expect(log.scan(1, 1, 1e9, (_seq, record, length) => record[length - 1] === 7 && ++seen > 0)).toEqual({
    outcome: 'end',
  });
  return seen;
}

const canMount = smallDiskWorks();
function smallDiskWorks(): boolean {
  return (
    process.getuid?.() === 0 && spawnSync('unshare', ['--mount', 'mount', '-t', 'tmpfs', 'tmpfs', '/mnt']).status === 0
  );
}

describe.skipIf(!canMount)('a full disk', () => {
  it('first uses up the ballast, then commits nothing, and goes on by itself when there is room', async () => {
    const scope = testScope();
    const disk = smallDisk(scope, 12 * MIB);
    if (disk === undefined) throw new Error('no tmpfs could be mounted');
    const store = join(disk, 'store');
    const told: boolean[] = [];
    const onLowSpace = (low: boolean): void => void told.push(low);
    const log = await openLmdbEventLog(store, { minFreeBytes: MIB, ballastBytes: 2 * MIB, onLowSpace });
    scope.defer(() => log.close());
    await waitFor('the ballast', () => existsSync(join(store, 'ballast')));
    expect((await log.commit(batch(log, 1000))).outcome).toBe('committed');
    expect(log.lowOnSpace).toBe(false);

    const filler = fillDisk(disk);
    // The ballast is given for this one.
    expect((await log.commit(batch(log, 200_000))).outcome).toBe('committed');
    expect(log.lowOnSpace).toBe(true);
    expect(existsSync(join(store, 'ballast'))).toBe(false);
    expect(freeBytes(disk)).toBeGreaterThan(MIB);

    expect(await commitUntilFull(log, 200_000)).toMatchObject({ outcome: 'not_committed', cause: 'no_space' });
    const stored = log.lastSeq(1);
    expect(count(log)).toBe(stored);
    expect((await log.commit(batch(log, 200_000))).outcome).toBe('not_committed');
    expect(log.lastSeq(1)).toBe(stored);

    rmSync(filler);
    expect((await log.commit(batch(log, 200_000))).outcome).toBe('committed');
    await waitFor('room again', () => !log.lowOnSpace);
    expect(existsSync(join(store, 'ballast'))).toBe(true);
    expect(count(log)).toBe(stored + 1);
    expect(told).toEqual([true, false]);
  });

  it('is not opened, and one that was full opens again with everything that was committed', async () => {
    const scope = testScope();
    const disk = smallDisk(scope, 8 * MIB);
    if (disk === undefined) throw new Error('no tmpfs could be mounted');
    const store = join(disk, 'store');
    const options = { minFreeBytes: MIB, ballastBytes: 4096 };
    const log = await openLmdbEventLog(store, options);
    await commitUntilFull(log, 50_000);
    const stored = log.lastSeq(1);
    await log.close();
    const filler = fillDisk(disk);
    await expect(openLmdbEventLog(store, options)).rejects.toMatchObject({ kind: 'no_space' });
    // Also a new one, where not even the owner record fits.
    await expect(openLmdbEventLog(join(disk, 'other'), options)).rejects.toMatchObject({ kind: 'no_space' });
    expect(readdirSync(join(disk, 'other'))).toEqual([]);
    rmSync(filler);
    rmSync(join(store, 'ballast'), { force: true });
    const again = await openLmdbEventLog(store, { minFreeBytes: 0, ballastBytes: 4096 });
    expect(again.lastSeq(1)).toBe(stored);
    expect(count(again)).toBe(stored);
    await again.close();
  });
});
