import {
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { acquireStoreLock, prepareStoreDir, storeOwner, type StoreLock } from '../../storage/store-lock.ts';
import { testScope } from '../support/scope.ts';
import { startStoreProcess } from '../support/store-process.ts';
import { tempDir } from '../support/temp-dir.ts';

async function lockOf(dir: string): Promise<StoreLock> {
  const result = await acquireStoreLock(dir);
  if (!('lock' in result)) throw new Error(`held by ${result.held.pid}`);
  return result.lock;
}

describe('store lock', () => {
  it('names the process that holds it, and is free when that one has gone, however it went', async () => {
    const scope = testScope();
    const dir = tempDir(scope);
    const owner = startStoreProcess(scope, ['lock', dir]);
    expect(await owner.first()).toBe('locked');
    expect(await acquireStoreLock(dir)).toEqual({ held: { pid: owner.child.pid } });
    expect(await storeOwner(dir)).toBe(owner.child.pid);
    await owner.kill();
    expect(await storeOwner(dir)).toBeUndefined();
    const lock = await lockOf(dir);
    expect(await storeOwner(dir)).toBe(process.pid);
    expect(lock.lost()).toBeUndefined();
    await lock.release();
    expect(readdirSync(dir)).toEqual([]);
  });

  it('is held by a process that is stopped and cannot answer', async () => {
    const scope = testScope();
    const dir = tempDir(scope);
    const owner = startStoreProcess(scope, ['lock', dir]);
    await owner.first();
    owner.child.kill('SIGSTOP');
    expect(await acquireStoreLock(dir)).toEqual({ held: { pid: owner.child.pid } });
  });

  it('goes to exactly one of many that start at the same instant over a dead owner', async () => {
    const scope = testScope();
    const dir = tempDir(scope);
    for (let round = 0; round < 3; round++) {
      const dead = startStoreProcess(scope, ['lock', dir]);
      expect(await dead.first()).toBe('locked');
      await dead.kill();
      const rivals = Array.from({ length: 2 }, () => startStoreProcess(scope, ['lock', dir]));
      const mine = Array.from({ length: 8 }, () => acquireStoreLock(dir));
      const said = await Promise.all(rivals.map((rival) => rival.first()));
      const got = (await Promise.all(mine)).flatMap((result) => ('lock' in result ? [result.lock] : []));
      expect(said.filter((line) => line === 'locked').length + got.length).toBe(1);
      await Promise.all(rivals.map((rival) => rival.kill()));
      await Promise.all(got.map((lock) => lock.release()));
    }
  });

  it('stays with its owner when a rival has died halfway through taking it', async () => {
    const scope = testScope();
    const dir = tempDir(scope);
    const rival = startStoreProcess(scope, ['lock', dir]);
    await rival.first();
    await rival.kill();
    renameSync(join(dir, 'lock-1.sock'), join(dir, 'lock-7.sock'));
    const server = createServer((socket) => socket.end('{"pid":4321}\n'));
    scope.defer(() => server.close());
    await new Promise<void>((resolve) => server.listen(join(dir, 'lock-2.sock'), resolve));
    expect(await acquireStoreLock(dir)).toEqual({ held: { pid: 4321 } });
    expect(
      readdirSync(dir)
        .filter((name) => name.startsWith('lock'))
        .toSorted(),
    ).toEqual(['lock-2.sock', 'lock-7.sock']);
  });

  it('is lost when the owner record names somebody else or is gone', async () => {
    const dir = tempDir(testScope());
    const lock = await lockOf(dir);
    const path = join(dir, 'owner.json');
    const own = readFileSync(path);
    writeFileSync(path, own);
    expect(lock.lost()).toBeUndefined();
    writeFileSync(path, JSON.stringify({ pid: 1, token: 'another' }));
    expect(lock.lost()).toMatch(/another owner \(pid 1\)/);
    await lock.release();
    // Somebody else's record is not removed.
    expect(readdirSync(dir)).toEqual(['owner.json']);
  });

  it('works in a directory whose path is longer than a socket address', async () => {
    const scope = testScope();
    const dir = prepareStoreDir(join(tempDir(scope), 'long-'.repeat(20), 'directory-'.repeat(20)));
    const owner = startStoreProcess(scope, ['lock', dir]);
    expect(await owner.first()).toBe('locked');
    expect(await acquireStoreLock(dir)).toEqual({ held: { pid: owner.child.pid } });
    await owner.kill();
    const lock = await lockOf(dir);
    await lock.release();
    expect(readdirSync(dir)).toEqual([]);
  });
});

describe('store directory', () => {
  it('is for its owner only, also when it was there before', () => {
    const dir = join(tempDir(testScope()), 'a', 'b');
    mkdirSync(dir, { recursive: true, mode: 0o755 });
    expect(prepareStoreDir(dir)).toBe(dir);
    expect(statSync(dir).mode & 0o777).toBe(0o700);
  });

  it('is not a symbolic link and not a file', () => {
    const parent = tempDir(testScope());
    mkdirSync(join(parent, 'real'));
    symlinkSync(join(parent, 'real'), join(parent, 'link'));
    writeFileSync(join(parent, 'file'), '');
    expect(() => prepareStoreDir(join(parent, 'link'))).toThrow(/symbolic link/);
    expect(() => prepareStoreDir(join(parent, 'file'))).toThrow(/not a directory/);
    expect(lstatSync(join(parent, 'link')).isSymbolicLink()).toBe(true);
  });
});
