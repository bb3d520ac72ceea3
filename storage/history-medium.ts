/**
 * Where a cached history lies: a file, or memory when there is no disk to write to.
 *
 * Files are read with `read`, never mapped: a mapped file that somebody truncates kills the process with SIGBUS, and the
 * cache must survive whatever is done to its files while it is in use. That is why it is not an LMDB environment.
 */
import { closeSync, constants, fstatSync, openSync, readSync, rmSync, writeSync } from 'node:fs';

export interface Medium {
  /** The bytes at a place; undefined when they are not all there. */
  read(offset: number, length: number): Buffer | undefined;
  /** @throws when there is no room or no disk */
  write(offset: number, bytes: Buffer): void;
  /** Somebody took it away. */
  readonly gone: boolean;
  close(): void;
}

export class FileMedium implements Medium {
  #fd: number;

  private constructor(fd: number) {
    this.#fd = fd;
  }

  /** An existing file. @throws when there is none, or it is not a plain file */
  static open(path: string, readOnly = false): FileMedium {
    const fd = openSync(
      path,
      (readOnly ? constants.O_RDONLY : constants.O_RDWR) | constants.O_NOFOLLOW | constants.O_NONBLOCK,
    );
    if (fstatSync(fd).isFile()) return new FileMedium(fd);
    closeSync(fd);
    throw new Error(`${path} is not a file`);
  }

  /** A new file in place of whatever is there. */
  static create(path: string): FileMedium {
    rmSync(path, { recursive: true, force: true });
    return new FileMedium(openSync(path, 'wx+', 0o600));
  }

  get gone(): boolean {
    return fstatSync(this.#fd).nlink === 0;
  }

  read(offset: number, length: number): Buffer | undefined {
    // A length that is not ours may be anything.
    if (offset + length > fstatSync(this.#fd).size) return undefined;
    const bytes = Buffer.allocUnsafe(length);
    for (let done = 0; done < length; ) {
      const count = readSync(this.#fd, bytes, done, length - done, offset + done);
      if (count === 0) return undefined;
      done += count;
    }
    return bytes;
  }

  write(offset: number, bytes: Buffer): void {
    for (let done = 0; done < bytes.length; ) {
      done += writeSync(this.#fd, bytes, done, bytes.length - done, offset + done);
    }
  }

  /** After this every use throws: the number of the descriptor may be another file's by then. */
  close(): void {
    if (this.#fd >= 0) closeSync(this.#fd);
    this.#fd = -1;
  }
}

export class MemoryMedium implements Medium {
  readonly gone = false;
  #bytes = Buffer.alloc(64 * 1024);
  #size = 0;

  read(offset: number, length: number): Buffer | undefined {
    return offset + length > this.#size ? undefined : this.#bytes.subarray(offset, offset + length);
  }

  write(offset: number, bytes: Buffer): void {
    const end = offset + bytes.length;
    if (end > this.#bytes.length) {
      const larger = Buffer.alloc(Math.max(end, 2 * this.#bytes.length));
      this.#bytes.copy(larger, 0, 0, this.#size);
      this.#bytes = larger;
    }
    bytes.copy(this.#bytes, offset);
    this.#size = Math.max(this.#size, end);
  }

  close(): void {
    this.#bytes = Buffer.alloc(0);
    this.#size = 0;
  }
}
