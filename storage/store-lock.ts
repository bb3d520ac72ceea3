/**
 * The exclusive lock of a store directory. Node has no flock; what the kernel gives back when a process dies, however it
 * dies, is a bound Unix socket. Its owner answers every connection with one line, `{"pid":1234}`, and keeps pages for
 * those that ask for it (`page-holds.ts`).
 *
 * A socket file outlives its process, and between "nobody answers" and "now it is mine" another process may have done
 * the same. So a name is never taken over. Sockets are numbered, `lock-1.sock`, `lock-2.sock`, ...:
 *
 *   1. list them and connect to the highest. It answers: held. None: bind 1. Refused: bind the next number.
 *   2. binding is exclusive; the name exists already: somebody was faster, begin again.
 *   3. look again: a higher one, or a lower one that answers: give mine up, begin again after a random while.
 *   4. else it is mine: remove the lower ones, which are dead, and write the owner record.
 *
 * Of two that both get to 3, the one that bound later sees the other; so never two get to 4. The owner record is
 * the second line of defence: it is looked at before every commit, and a store that names somebody else is lost.
 */
import { createHash, randomBytes } from 'node:crypto';
import { closeSync, existsSync, lstatSync, mkdirSync, openSync, readdirSync, readFileSync } from 'node:fs';
import { chmodSync, realpathSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { connect, createServer, type Server } from 'node:net';
import { dirname, join, resolve } from 'node:path';
import { PageHolds } from './page-holds.ts';
import { StoreOpenError, unusable } from './store-error.ts';

/** sockaddr_un holds 108 bytes with the final NUL on Linux, 104 elsewhere. */
const SOCKET_PATH_BYTES = process.platform === 'linux' ? 107 : 103;
const SOCKET_NAME = /^lock-([1-9]\d{0,8})\.sock$/;
const LONGEST_NAME_BYTES = 'lock-999999999.sock'.length;
const ANSWER_MS = 2000;
const ATTEMPTS = 200;
const MEETINGS = 10;

export interface StoreLock {
  /** Why the store is not ours any more, undefined while it is. One `stat`; cheap enough for every commit. */
  lost(): string | undefined;
  /** Readers of other processes. */
  readonly holds: PageHolds;
  release(): Promise<void>;
}

/** `pid` is 0 when the owner did not tell it in time. */
export type LockResult = { readonly lock: StoreLock } | { readonly held: { readonly pid: number } };

/**
 * Makes the directory (0700) or takes it over as it is, and returns its real path. `what` it is, for the error.
 * @throws StoreOpenError `unsafe_path`, `unusable`
 */
export function prepareStoreDir(dir: string, what = 'the store'): string {
  const found = lstatSync(dir, { throwIfNoEntry: false });
  if (found?.isSymbolicLink()) throw new StoreOpenError('unsafe_path', `${dir} is a symbolic link`);
  if (found && !found.isDirectory()) throw new StoreOpenError('unsafe_path', `${dir} is not a directory`);
  const uid = process.getuid?.();
  if (found && uid !== undefined && found.uid !== uid) {
    throw new StoreOpenError('unsafe_path', `${dir} belongs to user ${found.uid}, not to ${uid}`);
  }
  try {
    if (!found) makeDirectories(dir);
    chmodSync(dir, 0o700);
    return realpathSync(dir);
  } catch (error) {
    throw unusable(`${what} ${dir}`, error);
  }
}

/** Node's own recursive `mkdir` never ends where a directory cannot be made, as in /proc. */
export function makeDirectories(dir: string): void {
  const missing: string[] = [];
  for (let path = resolve(dir); !existsSync(path); path = dirname(path)) missing.push(path);
  for (const path of missing.toReversed()) {
    try {
      mkdirSync(path, { mode: 0o700 });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
  }
}

/** Takes the lock of a store directory (see `prepareStoreDir`), or tells who has it. */
export async function acquireStoreLock(dir: string): Promise<LockResult> {
  const place = socketPlace(dir);
  const holds = new PageHolds();
  try {
    const taken = await takeSocket(place.dir, holds);
    if ('pid' in taken) {
      place.close();
      return { held: { pid: taken.pid || (readOwner(dir)?.pid ?? 0) } };
    }
    try {
      return { lock: ownStore(dir, place, taken.server, holds) };
    } catch (error) {
      await closeServer(taken.server, holds);
      throw error;
    }
  } catch (error) {
    place.close();
    throw error;
  }
}

/** The pid of the process that has the store open, undefined when none has. Changes nothing. */
export async function storeOwner(dir: string): Promise<number | undefined> {
  const place = socketPlace(dir);
  try {
    const highest = socketNumbers(place.dir).at(-1);
    if (highest === undefined) return undefined;
    const answer = await ask(join(place.dir, socketName(highest)));
    return 'pid' in answer ? answer.pid || readOwner(dir)?.pid : undefined;
  } finally {
    place.close();
  }
}

/** Where the process listens that has the store open, or had; undefined when none has. Call `close` once connected. */
export function ownerSocket(dir: string): { readonly path: string; close(): void } | undefined {
  const place = socketPlace(dir);
  const highest = socketNumbers(place.dir).at(-1);
  if (highest !== undefined) return { path: join(place.dir, socketName(highest)), close: () => place.close() };
  place.close();
  return undefined;
}

interface SocketPlace {
  /** Directory of the sockets, short enough for a socket's address. */
  readonly dir: string;
  close(): void;
}

/**
 * A long path is reached through the descriptor of its directory. Where there is no /proc, the sockets lie in /tmp under
 * a hash of the store's path: not in `os.tmpdir()`, which two processes may see differently.
 */
function socketPlace(dir: string): SocketPlace {
  if (Buffer.byteLength(dir) + 1 + LONGEST_NAME_BYTES <= SOCKET_PATH_BYTES) return { dir, close: () => undefined };
  const fd = openSync(dir, 'r');
  const viaFd = `/proc/self/fd/${fd}`;
  if (statSync(viaFd, { throwIfNoEntry: false })) return { dir: viaFd, close: () => closeSync(fd) };
  closeSync(fd);
  const hash = createHash('sha256').update(dir).digest('hex').slice(0, 24);
  return { dir: prepareStoreDir(`/tmp/acp-sidecar-${process.getuid?.() ?? 0}-${hash}`), close: () => undefined };
}

function socketName(number: number): string {
  return `lock-${number}.sock`;
}

function socketNumbers(dir: string): number[] {
  const numbers: number[] = [];
  for (const name of readdirSync(dir)) {
    const found = SOCKET_NAME.exec(name);
    if (found) numbers.push(Number(found[1]));
  }
  return numbers.sort((a, b) => a - b);
}

type Answer = { readonly pid: number } | { readonly nobody: 'refused' | 'absent' };

/** Who listens at a socket. One that accepts but does not answer (a stopped process) is somebody: pid 0. */
function ask(path: string): Promise<Answer> {
  return new Promise((resolve) => {
    const socket = connect(path);
    let text = '';
    const done = (answer: Answer): void => {
      socket.destroy();
      resolve(answer);
    };
    const told = (): Answer => {
      const found = /"pid":(\d{1,15})/.exec(text);
      return { pid: found ? Number(found[1]) : 0 };
    };
    socket.setTimeout(ANSWER_MS, () => done(told()));
    socket.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') done({ nobody: 'absent' });
      // Not ECONNRESET: that is an owner that closes just now, it was alive.
      else if (error.code === 'ECONNREFUSED') done({ nobody: 'refused' });
      else done(told());
    });
    socket.on('data', (bytes) => {
      text += bytes.toString('latin1');
      if (text.includes('\n')) done(told());
    });
    socket.on('close', () => done(told()));
  });
}

/** Binds the socket; undefined when its name exists. Unlinked by Node when the server is closed. */
function bind(path: string, holds: PageHolds): Promise<Server | undefined> {
  const server = createServer((socket) => holds.greet(socket));
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE') resolve(undefined);
      else reject(error);
    });
    server.listen(path, () => {
      server.on('error', () => undefined);
      server.unref();
      resolve(server);
    });
  });
}

function closeServer(server: Server, holds: PageHolds): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    holds.end();
  });
}

async function takeSocket(
  dir: string,
  holds: PageHolds,
): Promise<{ readonly server: Server } | { readonly pid: number }> {
  let met = 0;
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const highest = socketNumbers(dir).at(-1) ?? 0;
    if (highest > 0) {
      const answer = await ask(join(dir, socketName(highest)));
      if ('pid' in answer) return answer;
      if (answer.nobody === 'absent') continue;
    }
    const mine = highest + 1;
    const server = await bind(join(dir, socketName(mine)), holds);
    if (!server) continue;
    const rival = await rivalOf(dir, mine);
    if (rival === 'none') {
      for (const number of socketNumbers(dir)) {
        if (number < mine) rmSync(join(dir, socketName(number)), { force: true });
      }
      chmodSync(join(dir, socketName(mine)), 0o600);
      return { server };
    }
    await closeServer(server, holds);
    // A lower one that stays is no rival, it is the owner; a rival above it died halfway.
    if (rival !== 'higher' && ++met >= MEETINGS) return rival;
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 20));
  }
  throw new Error(`the lock of ${dir} could not be settled in ${ATTEMPTS} attempts`);
}

/** After binding `mine`: is there another claim that counts? */
async function rivalOf(dir: string, mine: number): Promise<'none' | 'higher' | { readonly pid: number }> {
  const others = socketNumbers(dir).filter((number) => number !== mine);
  if (others.some((number) => number > mine)) return 'higher';
  for (const number of others) {
    const answer = await ask(join(dir, socketName(number)));
    if ('pid' in answer) return answer;
  }
  return 'none';
}

interface Owner {
  readonly pid: number;
  readonly token: string;
}

function ownerPath(dir: string): string {
  return join(dir, 'owner.json');
}

function readOwner(dir: string): Owner | undefined {
  try {
    const owner: unknown = JSON.parse(readFileSync(ownerPath(dir), 'utf8'));
    if (typeof owner !== 'object' || owner === null || !('pid' in owner) || !('token' in owner)) return undefined;
    return typeof owner.pid === 'number' && typeof owner.token === 'string'
      ? { pid: owner.pid, token: owner.token }
      : undefined;
  } catch {
    return undefined;
  }
}

function ownStore(dir: string, place: SocketPlace, server: Server, holds: PageHolds): StoreLock {
  const token = randomBytes(12).toString('hex');
  const path = ownerPath(dir);
  const unfinished = `${path}.${process.pid}`;
  const record = { pid: process.pid, token, sockets: place.dir.startsWith('/proc/') ? dir : place.dir };
  try {
    writeFileSync(unfinished, `${JSON.stringify(record)}\n`, { mode: 0o600 });
    renameSync(unfinished, path);
  } catch (error) {
    rmSync(unfinished, { force: true });
    throw error;
  }
  let known = statSync(path);
  return {
    holds,
    lost() {
      const now = statSync(path, { throwIfNoEntry: false });
      if (!now) return `${path} is gone`;
      if (now.ino === known.ino && now.mtimeMs === known.mtimeMs && now.size === known.size) return undefined;
      const owner = readOwner(dir);
      if (owner?.token !== token) return `${path} names another owner (pid ${owner?.pid ?? 'unknown'})`;
      known = now;
      return undefined;
    },
    async release() {
      if (readOwner(dir)?.token === token) rmSync(path, { force: true });
      await closeServer(server, holds);
      place.close();
    },
  };
}
