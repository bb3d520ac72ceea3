/** Waits until an agent that has ended a turn says nothing more of it. One that never ends is not waited for. */

/** The quiet that is waited for, */
const QUIET_MS = 50;
/** and how long at most. */
const LONGEST_MS = 3000;

export class QuietWait {
  readonly #now: () => number;
  #timer: NodeJS.Timeout | undefined;
  #until = 0;

  constructor(now: () => number) {
    this.#now = now;
  }

  get waiting(): boolean {
    return this.#timer !== undefined;
  }

  begin(done: () => void): void {
    this.#until = this.#now() + LONGEST_MS;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      done();
    }, QUIET_MS);
  }

  /** The agent has said something. */
  heard(): void {
    if (this.#timer && this.#now() < this.#until) this.#timer.refresh();
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}
