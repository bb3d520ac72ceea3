/**
 * How a commit ends: committed, not committed for want of room, or unknown and then never again.
 *
 *   working --(no room, ENOSPC)--> ballast freed, same batch once more --(no room, ENOSPC)--> not_committed, working
 *   working --(any other error, or no end in time)--> failed for ever
 *
 * The room is asked for before: lmdb 3.5.6 survives a write that runs out of it, but now and then corrupts the heap of
 * its process on the way (a few hundred such commits are enough to see it), so it must not come to that as a rule.
 *
 * LMDB calls a write that the disk took only in part (it became full in the middle) an I/O error, so EIO on a disk that
 * is full now counts as ENOSPC. Were it a real one, no harm is done: the transaction is aborted either way, and if LMDB
 * has panicked the next commit runs into the time limit.
 */
import type { CommitOutcome } from './event-log.ts';
import type { Ballast } from './store-space.ts';

const EIO = 5;
const ENOSPC = 28;
const COMMITTED: CommitOutcome = { outcome: 'committed' };

/** What a full disk is met with. */
export type Reserve = Pick<Ballast, 'giveUp' | 'diskIsFull' | 'hasRoomFor'>;

export class FailStop {
  readonly #ballast: Reserve;
  readonly #timeoutMs: number;
  #failed: CommitOutcome | undefined;

  constructor(ballast: Reserve, timeoutMs: number) {
    this.#ballast = ballast;
    this.#timeoutMs = timeoutMs;
  }

  /** The outcome of every further commit, once one was unknown. */
  get failed(): CommitOutcome | undefined {
    return this.#failed;
  }

  fail(message: string): CommitOutcome {
    this.#failed ??= { outcome: 'unknown', message };
    return this.#failed;
  }

  /**
   * Runs one commit of records of `bytes`. `write` begins it and may be called again; it rejects with LMDB's error.
   * Never rejects itself.
   */
  async run(write: () => Promise<boolean>, bytes = 0): Promise<CommitOutcome> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<CommitOutcome>((resolve) => {
      timer = setTimeout(() => {
        resolve(this.fail(`a commit did not settle in ${this.#timeoutMs / 1000} s`));
      }, this.#timeoutMs);
    });
    const outcome = await Promise.race([this.#attempts(write, bytes), late]);
    clearTimeout(timer);
    return outcome;
  }

  async #attempts(write: () => Promise<boolean>, bytes: number): Promise<CommitOutcome> {
    for (;;) {
      if (!this.#ballast.hasRoomFor(bytes)) {
        if (this.#ballast.giveUp()) continue;
        return { outcome: 'not_committed', cause: 'no_space', message: 'the disk of the store is full' };
      }
      let cause: unknown;
      try {
        if (await write()) return COMMITTED;
        cause = new Error('the batch was refused');
      } catch (error) {
        cause = await causeOf(error);
      }
      const message = cause instanceof Error ? cause.message : String(cause);
      // It may have been given up in the meantime.
      if (this.#failed) return this.#failed;
      const code = errorCode(cause);
      if (code !== ENOSPC && !(code === EIO && this.#ballast.diskIsFull())) return this.fail(message);
      if (!this.#ballast.giveUp()) return { outcome: 'not_committed', cause: 'no_space', message };
    }
  }
}

/** LMDB says "see commitError", a promise that rejects with what happened. */
async function causeOf(error: unknown): Promise<unknown> {
  if (!(error instanceof Error) || !('commitError' in error)) return error;
  try {
    await error.commitError;
    return error;
  } catch (cause) {
    return cause;
  }
}

function errorCode(cause: unknown): unknown {
  return cause instanceof Error && 'code' in cause ? cause.code : undefined;
}
