/** Committed records that are still in memory: clients at the tip are served from them, not from the log. */
import { releaseRecord } from './run.ts';

/** Kept while more of them come. */
const RECENT_BYTES = 128 * 1024;
const RECENT_MS = 1000;

export class RecentRecords {
  readonly #bySeq = new Map<number, Buffer>();
  #bytes = 0;
  #timer: NodeJS.Timeout | undefined;

  get(seq: number): Buffer | undefined {
    return this.#bySeq.get(seq);
  }

  /** Lets the oldest go that are too many. What is added after this stays whatever its size, until the next call. */
  trim(): void {
    this.#shrinkTo(RECENT_BYTES);
    this.#timer?.refresh();
  }

  add(seq: number, record: Buffer): void {
    this.#bySeq.set(seq, record);
    this.#bytes += record.length;
    this.#timer ??= setTimeout(this.#forgetAll, RECENT_MS).unref();
  }

  /** Events up to `seq` are in the log in another form. */
  dropTo(seq: number): void {
    for (const [known, record] of this.#bySeq) {
      if (known > seq) break;
      this.#drop(known, record);
    }
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#forgetAll();
  }

  #shrinkTo(bytes: number): void {
    for (const [oldest, record] of this.#bySeq) {
      if (this.#bytes <= bytes) break;
      this.#drop(oldest, record);
    }
  }

  #drop(seq: number, record: Buffer): void {
    this.#bySeq.delete(seq);
    releaseRecord(record);
    this.#bytes -= record.length;
  }

  readonly #forgetAll = (): void => {
    this.#timer = undefined;
    this.#shrinkTo(0);
  };
}
