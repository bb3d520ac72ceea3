/**
 * The daemon's control socket: one line of JSON in, one out. `status` tells its version and what it has to do; `retire`
 * ends it when a newer version asks and nothing runs; its clients connect again and start the newer one.
 */
import { chmodSync } from 'node:fs';
import { type Server, connect, createServer } from 'node:net';
import { isObject } from '../../protocol/json-rpc.ts';
import { unlinkStaleSocket } from './stale-socket.ts';

export interface DaemonStatus {
  readonly version: string;
  readonly pid: number;
  readonly clients: number;
  /** Turns that run or wait. */
  readonly turns: number;
  readonly approvals: number;
}

export interface ControlHandler {
  status(): DaemonStatus;
  /** Ends the daemon in good order. */
  stop(): void;
}

const ANSWER_MS = 2000;
const MAX_LINE = 4096;

export async function serveControl(path: string, handler: ControlHandler): Promise<Server> {
  await unlinkStaleSocket(path);
  const server = createServer((socket) => {
    let text = '';
    socket.on('error', () => undefined);
    socket.setTimeout(ANSWER_MS, () => socket.destroy());
    socket.on('data', (bytes) => {
      text += bytes.toString('utf8');
      if (text.includes('\n')) socket.end(`${JSON.stringify(answer(text, handler))}\n`);
      else if (text.length > MAX_LINE) socket.destroy();
    });
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(path, resolve);
  });
  chmodSync(path, 0o600);
  server.unref();
  return server;
}

function answer(line: string, handler: ControlHandler): object {
  const order = objectOf(line);
  const status = handler.status();
  if (!order) return { error: 'not a JSON object' };
  if (order['do'] === 'status') return status;
  if (order['do'] === 'stop') {
    handler.stop();
    return { stopping: true };
  }
  if (order['do'] !== 'retire') return { error: 'unknown order' };
  const newer = typeof order['version'] === 'string' && isNewer(order['version'], status.version);
  const stopping = newer && status.turns === 0 && status.approvals === 0;
  if (stopping) handler.stop();
  return { stopping };
}

/** Asks a daemon; undefined when there is none or it says nothing of use. */
export function askDaemon(path: string, order: object): Promise<Readonly<Record<string, unknown>> | undefined> {
  return new Promise((resolve) => {
    const socket = connect(path);
    let text = '';
    const done = (): void => {
      socket.destroy();
      resolve(objectOf(text));
    };
    socket.setTimeout(ANSWER_MS, done);
    socket.on('connect', () => socket.write(`${JSON.stringify(order)}\n`));
    socket.on('data', (bytes) => (text += bytes.toString('utf8')));
    socket.on('error', done);
    socket.on('end', done);
  });
}

function objectOf(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** `1.10.0` is newer than `1.9.3`; what follows a `-` does not count. */
export function isNewer(version: string, than: string): boolean {
  const a = numbers(version);
  const b = numbers(than);
  for (let i = 0; i < 3; i++) if ((a[i] ?? 0) !== (b[i] ?? 0)) return (a[i] ?? 0) > (b[i] ?? 0);
  return false;
}

function numbers(version: string): number[] {
  return (version.split(/[-+]/, 1)[0] ?? '').split('.').map((part) => Number(part) || 0);
}
