/**
 * Room on the store's disk. Opening LMDB on a full disk is a SIGBUS, so the room is looked at before; and a ballast file
 * lies in the store that is given up at the first ENOSPC, so that what runs can normally be recorded to its end.
 */
import { randomBytes } from 'node:crypto';
import { statfsSync, statSync, unlinkSync } from 'node:fs';
import { open, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { StoreOpenError } from './store-error.ts';

export const MIN_FREE_BYTES = 64 * 1024 * 1024;
export const BALLAST_BYTES = 16 * 1024 * 1024;
const CHECK_EVERY_MS = 1000;
const FULL_BYTES = 1024 * 1024;
/** LMDB writes pages: up to this many times the records, and the way to them in the trees. */
const PAGES_PER_RECORD = 2.5;
const TREE_BYTES = 256 * 1024;

/** Bytes that may still be written under `dir`. */
export function freeBytes(dir: string): number {
  const room = statfsSync(dir);
  return room.bavail * room.bsize;
}

/** @throws StoreOpenError `no_space` */
export function requireFreeSpace(dir: string, minFreeBytes: number): void {
  const free = freeBytes(dir);
  if (free >= minFreeBytes) return;
  const mib = (bytes: number): string => `${Math.floor(bytes / 1024 / 1024)} MiB`;
  throw new StoreOpenError(
    'no_space',
    `${dir} has ${mib(free)} free, ${mib(minFreeBytes)} are needed to open the store`,
  );
}

/** Writes a file that really takes its blocks (a hole would free nothing), under a second name until it is whole. */
async function writeBallast(path: string, bytes: number): Promise<void> {
  const unfinished = `${path}.tmp`;
  try {
    const file = await open(unfinished, 'w', 0o600);
    try {
      const block = randomBytes(Math.min(bytes, 1024 * 1024));
      for (let left = bytes; left > 0; left -= block.length) await file.write(block, 0, Math.min(left, block.length));
    } finally {
      await file.close();
    }
    await rename(unfinished, path);
  } catch (error) {
    await rm(unfinished, { force: true }).catch(() => undefined);
    throw error;
  }
}

/**
 *   absent --(room)--> writing --> there --(give up at ENOSPC)--> absent
 */
export class Ballast {
  readonly #dir: string;
  readonly #path: string;
  readonly #bytes: number;
  #there: boolean;
  #writing: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  readonly #onGiven: (given: boolean) => void;

  /** @param onGiven is told when `given` changes */
  constructor(dir: string, bytes: number, onGiven: (given: boolean) => void = () => undefined) {
    this.#onGiven = onGiven;
    this.#dir = dir;
    this.#path = join(dir, 'ballast');
    this.#bytes = bytes;
    this.#there = statSync(this.#path, { throwIfNoEntry: false })?.size === bytes;
    if (!this.#there) this.#write();
  }

  /** True from the first ENOSPC until there was room for the ballast again. */
  get given(): boolean {
    return this.#timer !== undefined;
  }

  /** Is there as good as nothing left? */
  diskIsFull(): boolean {
    try {
      return freeBytes(this.#dir) < FULL_BYTES;
    } catch {
      return false;
    }
  }

  /** Whether a commit of records of `bytes` can be written without running out of room. */
  hasRoomFor(bytes: number): boolean {
    try {
      return freeBytes(this.#dir) >= bytes * PAGES_PER_RECORD + TREE_BYTES;
    } catch {
      // A disk that cannot be asked is tried.
      return true;
    }
  }

  /** Frees the ballast and looks for room from now on. Returns whether that freed anything. */
  giveUp(): boolean {
    this.#give();
    if (!this.#there) return false;
    this.#there = false;
    try {
      unlinkSync(this.#path);
      return true;
    } catch {
      return false;
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#timer);
    await this.#writing;
  }

  #give(): void {
    if (this.#timer) return;
    this.#timer = setInterval(() => this.#restore(), CHECK_EVERY_MS).unref();
    this.#onGiven(true);
  }

  #restore(): void {
    try {
      // Twice its size: taking the last bytes would only bring back what was just got over.
      if (!this.#writing && freeBytes(this.#dir) >= 2 * this.#bytes) this.#write();
    } catch {
      // A disk that cannot be asked is asked again.
    }
  }

  #write(): void {
    this.#writing = writeBallast(this.#path, this.#bytes)
      .then(
        () => {
          this.#there = true;
          clearInterval(this.#timer);
          if (this.#timer) this.#onGiven(false);
          this.#timer = undefined;
        },
        () => {
          if (!this.#closed) this.#give();
        },
      )
      .finally(() => {
        this.#writing = undefined;
      });
  }
}
