/** Splits an agent's stderr into lines and keeps its end for error messages, without what `--redact` names. */
import { redactText } from '../redact.ts';

const MAX_LINES = 20;
const MAX_BYTES = 4096;

export class StderrTail {
  #partial = '';
  #cutting = false;
  readonly #lines: string[] = [];
  #bytes = 0;
  readonly #onLine: (line: string) => void;
  readonly #redact: readonly RegExp[];

  /** `onLine` gets every line, cut to 4 KiB. */
  constructor(onLine: (line: string) => void, redact: readonly RegExp[] = []) {
    this.#onLine = onLine;
    this.#redact = redact;
  }

  push(text: string): void {
    let rest = text;
    for (let end = rest.indexOf('\n'); end >= 0; end = rest.indexOf('\n')) {
      this.#take(rest.slice(0, end));
      this.end();
      this.#cutting = false;
      rest = rest.slice(end + 1);
    }
    this.#take(rest);
  }

  /** The last line may have no line end. */
  end(): void {
    const line = redactText(this.#partial.replace(/\r$/, ''), this.#redact);
    this.#partial = '';
    if (line !== '') this.#keep(line);
  }

  /** The last 20 lines, at most 4 KiB. */
  text(): string {
    return this.#lines.join('\n');
  }

  #take(text: string): void {
    if (this.#cutting) return;
    this.#partial += text;
    if (this.#partial.length < MAX_BYTES) return;
    this.#partial = this.#partial.slice(0, MAX_BYTES);
    this.end();
    this.#cutting = true;
  }

  #keep(line: string): void {
    this.#onLine(line);
    this.#lines.push(line);
    this.#bytes += line.length + 1;
    while (this.#lines.length > MAX_LINES || (this.#bytes > MAX_BYTES && this.#lines.length > 1)) {
      this.#bytes -= (this.#lines.shift()?.length ?? 0) + 1;
    }
  }
}
