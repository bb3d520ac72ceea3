/**
 * A connection to the daemon of a store and an agent; one is started when there is none.
 *
 *   connect --answered--> done
 *      | nobody there
 *   start lock --held by another `run`--> wait, connect again
 *      | mine
 *   connect once more --answered--> done
 *      | nobody there: start the daemon, wait for its ready line, connect
 *
 * Whoever holds the start lock and dies leaves it free. Were a second daemon started all the same, the store's lock ends
 * it with exit code 3, and everybody connects to the first. When the store's owner does not listen here, it is a daemon
 * of ours with another place for sockets, which is asked to listen here too, or another agent's: that is said at once.
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { closeSync, openSync, readFileSync, renameSync, rmdirSync, statSync } from 'node:fs';
import type { Socket } from 'node:net';
import { basename } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ErrorKind } from '../../protocol/error.ts';
import { acquireStoreLock, prepareStoreDir } from '../../storage/store-lock.ts';
import { EXIT_CODES, exitCode } from '../cli/exit-code.ts';
import { type FinalError, connectTo } from '../client/unix-transport.ts';
import { askServer } from '../control/control-client.ts';
import { VERSION, isNewer } from '../version.ts';
import type { DaemonOrder } from './daemon-order.ts';
import { type DaemonPlace, daemonCwd } from './daemon-place.ts';

const START_MS = 30_000;
const LOOK_MS = 15;
/** After a daemon found the store held: its owner is ending, or is another agent's. */
const HELD_MS = 100;
const RETIRE_MS = 10_000;
const MAX_LOG_BYTES = 10 * 1024 * 1024;

/** A daemon that cannot be had; trying again would not help. */
export class DaemonFailure extends Error implements FinalError {
  readonly final = true;
  readonly kind: ErrorKind;
  readonly exitCode: number;

  constructor(message: string, code: number) {
    super(message);
    this.name = 'DaemonFailure';
    this.exitCode = code;
    const known = code === exitCode('agent_failed') || code === exitCode('store_in_use');
    this.kind = known ? 'agent_unavailable' : 'internal';
  }
}

/** @throws DaemonFailure */
export async function joinDaemon(order: DaemonOrder, program: string): Promise<Socket> {
  const { place } = order;
  const until = Date.now() + START_MS;
  let held: string | undefined;
  let waited = false;
  while (Date.now() < until) {
    const socket = await tryConnect(place);
    if (socket) {
      // Made again while another `run` was taking it away.
      if (waited) removeIfEmpty(place.startDir);
      return socket;
    }
    waited = true;
    prepareStoreDir(place.startDir);
    const taken = await acquireStoreLock(place.startDir).catch(() => undefined);
    if (!taken || 'held' in taken) {
      await sleep(LOOK_MS);
      continue;
    }
    try {
      const late = await tryConnect(place);
      if (late) return late;
      const started = await startDaemon(order, program);
      if (started.outcome === 'ready') return await connectTo(place.socket);
      held = started.message;
    } finally {
      await taken.lock.release();
      removeIfEmpty(place.startDir);
    }
    await askOwner(place);
    await sleep(HELD_MS);
  }
  throw new DaemonFailure(held ?? `the daemon did not answer in ${START_MS / 1000} s`, exitCode('store_in_use'));
}

/**
 * The store has an owner that does not listen here. When it is our daemon all the same (the runtime directory is another
 * one for this `run`, or was taken away), it is asked to.
 * @throws DaemonFailure when it is a server that is not ours and does not end
 */
async function askOwner(place: DaemonPlace): Promise<void> {
  const { storeDir, socket } = place;
  // One that went away is what is waited for; of one that says nothing the lock says enough.
  const facts = await ownerFacts(storeDir).catch(() => undefined);
  if (facts === undefined || facts.draining === true) return;
  const { pid, endpoints } = facts;
  let who = `${storeDir} is in use by process ${String(pid)}, a sidecar that runs another agent or is a server`;
  if (Array.isArray(endpoints) && endpoints.some((endpoint) => basename(String(endpoint)) === basename(socket))) {
    const reached = await tryConnect(place);
    reached?.destroy();
    if (reached) return;
    try {
      await askServer(storeDir, { command: 'listen', path: socket }, () => undefined);
      return;
    } catch (error) {
      who = `${storeDir} has a daemon (process ${String(pid)}) that cannot listen on ${socket}: ${String(error)}`;
    }
  }
  const todo = `\`acp-sidecar stop --store ${storeDir}\` ends it; --store DIR gives this agent a store of its own`;
  throw new DaemonFailure(`${who}: ${todo}`, exitCode('store_in_use'));
}

/** Ends an older daemon that has nothing to do. Whatever it answers, connecting is right afterwards. */
export async function retireOlder(place: DaemonPlace): Promise<void> {
  const { storeDir } = place;
  let facts: OwnerFacts | undefined;
  try {
    facts = await ownerFacts(storeDir);
    if (typeof facts?.version !== 'string' || !isNewer(VERSION, facts.version)) return;
    await askServer(storeDir, { command: 'retire', version: VERSION }, () => undefined);
    facts = (await ownerFacts(storeDir)) ?? facts;
  } catch {
    // It went away in the middle, or it is so old that it does not know these commands.
  }
  if (facts?.draining !== true) return;
  const until = Date.now() + RETIRE_MS;
  while (Date.now() < until && (await tryConnect(place))?.destroy()) await sleep(LOOK_MS);
}

interface OwnerFacts {
  readonly pid?: unknown;
  readonly version?: unknown;
  readonly draining?: unknown;
  readonly endpoints?: unknown;
}

/** What the server of a store says of itself; undefined when there is none. @throws CommandError, or what the socket says */
async function ownerFacts(storeDir: string): Promise<OwnerFacts | undefined> {
  const lines: string[] = [];
  await askServer(storeDir, { command: 'status' }, (line) => lines.push(line));
  return lines[0] === undefined ? undefined : (JSON.parse(lines[0]) as OwnerFacts);
}

async function tryConnect(place: DaemonPlace): Promise<Socket | undefined> {
  try {
    return await connectTo(place.socket);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ECONNREFUSED' || code === 'EAGAIN') return undefined;
    throw new DaemonFailure(`${place.socket}: ${code ?? String(error)}`, exitCode('failure'));
  }
}

type Started = { readonly outcome: 'ready' } | { readonly outcome: 'held'; readonly message: string };

/** Runs it in a session of its own. @throws DaemonFailure with the end of its log */
async function startDaemon(order: DaemonOrder, program: string): Promise<Started> {
  const { place } = order;
  try {
    prepareStoreDir(place.storeDir);
  } catch (error) {
    throw new DaemonFailure((error as Error).message, exitCode('store_failed'));
  }
  const log = openLog(place.logFile);
  const child = spawn(process.execPath, [program, 'daemon'], {
    cwd: daemonCwd(),
    detached: true,
    stdio: ['pipe', 'pipe', log.fd],
  }) as ChildProcessByStdio<Writable, Readable, null>;
  closeSync(log.fd);
  const exited = new Promise<number>((resolve) => {
    child.once('error', () => resolve(exitCode('failure')));
    child.once('exit', (code) => resolve(code ?? exitCode('failure')));
  });
  child.stdin.on('error', () => undefined);
  child.stdin.end(JSON.stringify(order));
  const ready = new Promise<'ready'>((resolve) => {
    let text = '';
    child.stdout.on('data', (bytes: Buffer) => {
      text += bytes.toString('utf8');
      if (text.includes('\n')) resolve('ready');
    });
  });
  const outcome = await Promise.race([ready, exited]);
  child.stdout.destroy();
  child.unref();
  if (outcome === 'ready') return { outcome: 'ready' };
  const message = readFileSync(place.logFile).subarray(log.from).toString('utf8').trim().slice(-2000);
  if (outcome === EXIT_CODES.store_in_use.code) return { outcome: 'held', message };
  throw new DaemonFailure(message || `the daemon ended with exit code ${outcome}`, outcome);
}

function openLog(path: string): { readonly fd: number; readonly from: number } {
  const size = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  if (size > MAX_LOG_BYTES) renameSync(path, `${path}.1`);
  const fd = openSync(path, 'a', 0o600);
  return { fd, from: size > MAX_LOG_BYTES ? 0 : size };
}

/** The lock's directory goes with its last user; another `run` makes it again. */
function removeIfEmpty(dir: string): void {
  try {
    rmdirSync(dir);
  } catch {
    // Somebody is in it already.
  }
}
