/** What a terminal gets and a pipe does not: colour, and how far long work has come. */

/** Colour is for terminals; `NO_COLOR` of any value but the empty one turns it off (https://no-color.org). */
export function hasColour(stream: { readonly isTTY?: boolean } = process.stdout, env = process.env): boolean {
  return stream.isTTY === true && !env['NO_COLOR'] && env['TERM'] !== 'dumb';
}

const CODES = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33, cyan: 36 } as const;
export type Colour = keyof typeof CODES;

/** @param text without control characters; the codes are put around it */
export function paint(text: string, colour: Colour, on = hasColour()): string {
  return on && text !== '' ? `\x1b[${CODES[colour]}m${text}\x1b[0m` : text;
}

/** East Asian and pictographic characters take two columns, combining ones none. */
const WIDE =
  /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/gu;

/** Columns that a text takes in a terminal. */
export function displayWidth(text: string): number {
  const plain = text.replace(/\p{M}+/gu, '');
  return Array.from(plain).length + (plain.match(WIDE)?.length ?? 0);
}

export function padded(text: string, columns: number): string {
  return text + ' '.repeat(Math.max(0, columns - displayWidth(text)));
}

/** A line cut to the width of the terminal; whole when it goes into a file or a pipe. */
export function fitted(line: string, columns = process.stdout.isTTY ? process.stdout.columns : undefined): string {
  if (columns === undefined || columns < 20 || displayWidth(line) <= columns) return line;
  let cut = '';
  let width = 1;
  for (const character of line) {
    width += displayWidth(character);
    if (width > columns) break;
    cut += character;
  }
  return `${cut}…`;
}

const EVERY_MS = 200;
const SILENT_MS = 1000;

export interface ProgressOptions {
  readonly on: boolean;
  /** Milliseconds. */
  readonly now: () => number;
  readonly write: (text: string) => void;
}

const ON_STDERR: ProgressOptions = {
  // Where what is printed goes to the same terminal, that shows how far it is.
  on: process.stderr.isTTY && !process.stdout.isTTY,
  now: () => performance.now(),
  write: (text) => void process.stderr.write(text),
};

/**
 * A line on stderr that tells how far long work has come: from the second on, in a terminal only, and gone at the end.
 */
export class Progress {
  readonly #what: string;
  readonly #options: ProgressOptions;
  readonly #started: number;
  #shownAt = 0;
  #width = 0;

  constructor(what: string, options: ProgressOptions = ON_STDERR) {
    this.#what = what;
    this.#options = options;
    this.#started = options.now();
  }

  step(done: number, total: number): void {
    if (!this.#options.on) return;
    const now = this.#options.now();
    if (now - this.#started < SILENT_MS || now - this.#shownAt < EVERY_MS) return;
    this.#shownAt = now;
    const text = `${this.#what}: ${done} of ${total} (${Math.floor((100 * done) / Math.max(1, total))} %)`;
    this.#options.write(`\r${text.padEnd(this.#width)}`);
    this.#width = text.length;
  }

  end(): void {
    if (this.#width > 0) this.#options.write(`\r${' '.repeat(this.#width)}\r`);
    this.#width = 0;
  }
}
