/**
 * Lines out of a byte stream, as wire text. Line ends are LF or CRLF, a byte order mark at the start and blank lines
 * are dropped, an unfinished last line counts at the end of the stream. A line over the limit is dropped alone: its
 * head is reported and reading goes on after its end.
 *
 * Only new bytes are searched, so a long line costs its length once.
 */
export interface LineSink {
  /**
   * The fast path: when the line that starts at `at` is understood without being cut out, takes it and returns the
   * offset behind its line end, else -1.
   */
  match?(text: string, at: number): number;
  line(wire: string): void;
  /** `head` is the beginning of a line of `bytes` bytes that was dropped. */
  oversized(head: string, bytes: number): void;
}

const HEAD_BYTES = 4096;
const BOM = '\xef\xbb\xbf';

export class LineReader {
  readonly #maxLineBytes: number;
  readonly #sink: LineSink;
  #pieces: string[] = [];
  #pending = 0;
  #started = false;

  constructor(maxLineBytes: number, sink: LineSink) {
    this.#maxLineBytes = maxLineBytes;
    this.#sink = sink;
  }

  /** Bytes of the unfinished line that are held. */
  get pendingBytes(): number {
    return this.#pending;
  }

  push(text: string): void {
    let at = 0;
    if (this.#pending > 0) {
      const end = text.indexOf('\n');
      if (end < 0) {
        this.#keep(text);
        return;
      }
      this.#keep(text.slice(0, end));
      this.#finish();
      at = end + 1;
    }
    const sink = this.#sink;
    while (at < text.length) {
      const next = sink.match ? sink.match(text, at) : -1;
      if (next >= 0) {
        at = next;
        continue;
      }
      const end = text.indexOf('\n', at);
      if (end < 0) {
        this.#keep(text.slice(at));
        return;
      }
      this.#emit(text.slice(at, end));
      at = end + 1;
    }
  }

  /** The stream has ended. */
  end(): void {
    if (this.#pending > 0) this.#finish();
  }

  #keep(piece: string): void {
    const before = this.#pending;
    this.#pending += piece.length;
    if (this.#pending <= this.#maxLineBytes) this.#pieces.push(piece);
    else if (before <= this.#maxLineBytes) {
      // From here on the line is only counted; its head tells what it was.
      this.#pieces = [headOf([...this.#pieces, piece])];
    }
  }

  #finish(): void {
    const bytes = this.#pending;
    const line = this.#pieces.join('');
    this.#pieces = [];
    this.#pending = 0;
    if (bytes > this.#maxLineBytes) this.#sink.oversized(line, bytes);
    else this.#emit(line);
  }

  #emit(raw: string): void {
    let line = raw;
    if (!this.#started) {
      this.#started = true;
      if (line.startsWith(BOM)) line = line.slice(BOM.length);
    }
    if (line.length > this.#maxLineBytes) {
      this.#sink.oversized(line.slice(0, HEAD_BYTES), line.length);
      return;
    }
    if (line.endsWith('\r')) line = line.slice(0, -1);
    if (line.trim() !== '') this.#sink.line(line);
  }
}

function headOf(pieces: readonly string[]): string {
  let head = '';
  for (const piece of pieces) {
    if (head.length === HEAD_BYTES) break;
    head += piece.slice(0, HEAD_BYTES - head.length);
  }
  return head;
}
