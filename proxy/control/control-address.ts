/** Where a running server listens for the commands that write: a Unix socket in the store's directory. */
import { closeSync, existsSync, openSync } from 'node:fs';
import { join } from 'node:path';

const NAME = 'control.sock';
/** Longest path of a Unix socket's address, without its end, on all systems. */
const SOCKET_PATH_BYTES = 103;

export interface ControlAddress {
  readonly path: string;
  close(): void;
}

/** A long path is reached through the descriptor of its directory; undefined where there is no way. */
export function controlAddress(storeDir: string): ControlAddress | undefined {
  const path = join(storeDir, NAME);
  if (Buffer.byteLength(path) <= SOCKET_PATH_BYTES) return { path, close: () => undefined };
  let fd: number;
  try {
    fd = openSync(storeDir, 'r');
  } catch {
    return undefined;
  }
  const short = `/proc/self/fd/${fd}`;
  if (existsSync(short)) return { path: join(short, NAME), close: () => closeSync(fd) };
  closeSync(fd);
  return undefined;
}
