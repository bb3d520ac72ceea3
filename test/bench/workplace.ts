/** Directories and servers that are gone when the work in them ends, however it ends. */
import { mkdtemp, rm, statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type ServerKind, ServerProcess, stopAll } from './server-process.ts';

const TMPFS_MAGIC = 0x01021994;

/** Commits to memory say nothing about a disk. */
export async function isInMemory(): Promise<boolean> {
  return (await statfs(tmpdir())).type === TMPFS_MAGIC;
}

export async function withDirectory<T>(work: (directory: string) => Promise<T>): Promise<T> {
  const directory = await mkdtemp(join(tmpdir(), 'acp-sidecar-bench-'));
  try {
    return await work(directory);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** Work in front of a fresh server with an empty store. */
export function withServer<T>(
  kind: ServerKind,
  work: (server: ServerProcess, store: string) => Promise<T>,
): Promise<T> {
  return withDirectory(async (directory) => {
    const store = join(directory, 'store');
    try {
      return await work(await ServerProcess.start(kind, store), store);
    } finally {
      await stopAll();
    }
  });
}
