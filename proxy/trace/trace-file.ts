/**
 * Lines into a file that is bounded: when it is full it becomes FILE.1, in place of the one before, and a new one is
 * begun. Lines of one turn of the event loop leave in one write. A file that cannot be written ends the trace, not the
 * sidecar.
 */
import { closeSync, constants, lstatSync, openSync, renameSync, writeSync } from 'node:fs';

/** Of one file; two exist at the most. */
export const TRACE_FILE_BYTES = 64 * 1024 * 1024;
/** Held back at most before it is written at once. */
const BUFFER_BYTES = 1024 * 1024;

export interface TraceFileOptions {
  readonly path: string;
  readonly maxBytes?: number;
  /** First line of each file; `part` counts from 1. */
  readonly header: (part: number) => string;
  /** Called once, with why nothing is traced any more. */
  readonly failed: (message: string) => void;
}

export class TraceFile {
  readonly #options: TraceFileOptions;
  readonly #maxBytes: number;
  #fd: number | undefined;
  #part = 0;
  #bytes = 0;
  #headerBytes = 0;
  #lines: string[] = [];
  #held = 0;
  #scheduled = false;

  /** A trace that is there already becomes FILE.1. @throws Error when the file cannot be made */
  constructor(options: TraceFileOptions) {
    this.#options = options;
    this.#maxBytes = options.maxBytes ?? TRACE_FILE_BYTES;
    this.#open();
  }

  /** @param line wire text without a line end */
  line(line: string): void {
    if (this.#fd === undefined) return;
    this.#lines.push(line);
    this.#held += line.length + 1;
    if (this.#held > BUFFER_BYTES) this.flush();
    else if (!this.#scheduled) {
      this.#scheduled = true;
      setImmediate(this.#onImmediate);
    }
  }

  /** Writes what is held back. */
  flush(): void {
    const lines = this.#lines;
    this.#lines = [];
    this.#held = 0;
    if (this.#fd === undefined) return;
    try {
      let chunk = '';
      for (const line of lines) {
        const full = this.#bytes + chunk.length + line.length >= this.#maxBytes;
        if (full && this.#bytes + chunk.length > this.#headerBytes) {
          this.#write(chunk);
          chunk = '';
          this.#next();
        }
        chunk += `${line}\n`;
      }
      this.#write(chunk);
    } catch (error) {
      this.#fail(error);
    }
  }

  close(): void {
    this.flush();
    if (this.#fd !== undefined) closeSync(this.#fd);
    this.#fd = undefined;
  }

  #next(): void {
    if (this.#fd !== undefined) closeSync(this.#fd);
    this.#fd = undefined;
    this.#open();
  }

  #open(): void {
    const { path, header } = this.#options;
    const found = lstatSync(path, { throwIfNoEntry: false });
    if (found && !found.isFile()) throw new Error(`${path} is not a file`);
    if (found) renameSync(path, `${path}.1`);
    const { O_CREAT, O_EXCL, O_WRONLY, O_NOFOLLOW } = constants;
    this.#fd = openSync(path, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW, 0o600);
    this.#bytes = 0;
    this.#write(`${header(++this.#part)}\n`);
    this.#headerBytes = this.#bytes;
  }

  #write(text: string): void {
    const bytes = Buffer.from(text, 'latin1');
    for (let at = 0; at < bytes.length && this.#fd !== undefined; ) at += writeSync(this.#fd, bytes, at);
    this.#bytes += bytes.length;
  }

  #fail(error: unknown): void {
    const fd = this.#fd;
    this.#fd = undefined;
    if (fd !== undefined) closeSync(fd);
    this.#options.failed(error instanceof Error ? error.message : String(error));
  }

  readonly #onImmediate = (): void => {
    this.#scheduled = false;
    this.flush();
  };
}
