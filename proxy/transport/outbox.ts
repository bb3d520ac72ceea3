/**
 * A client's outgoing bytes: whole messages are written into a page, and a page leaves as one write. At most
 * `boundBytes` wait here; when they do, `room` is 0 and the pump stays where it is until the socket has drained.
 *
 * Node 20 answers a big synchronous write with `true` even when bytes were over the high-water mark, and then never
 * emits 'drain'. So `drain` is waited for only when the socket says `writableNeedDrain`.
 */
import '../../storage/latin1.ts';
import type { Socket } from 'node:net';

export type Framing = 'websocket' | 'lines';

/** Longer than a full run in its envelope, so that it needs no page of its own. */
const PAGE_BYTES = 96 * 1024;
const MAX_FRAME_HEAD = 10;

/** Pages that no socket holds, shared by all clients: an idle client has none. */
const MAX_FREE_PAGES = 16;
const freePages: Buffer[] = [];

function giveBack(page: Buffer): void {
  if (page.length === PAGE_BYTES && freePages.length < MAX_FREE_PAGES) freePages.push(page);
}
const NO_PAGE = Buffer.alloc(0);

export class Outbox {
  readonly #socket: Socket;
  readonly #framing: Framing;
  readonly #boundBytes: number;
  #page: Buffer = NO_PAGE;
  #at = 0;
  /** Bytes of messages that were ever queued here. */
  total = 0;
  /** Sees each page of whole messages that is sent. */
  tap: ((page: Buffer) => void) | undefined;

  constructor(socket: Socket, framing: Framing, boundBytes: number) {
    this.#socket = socket;
    this.#framing = framing;
    this.#boundBytes = boundBytes;
  }

  /** Bytes that wait for the socket. */
  get queuedBytes(): number {
    return this.#socket.writableLength + this.#at;
  }

  /** Bytes that may still be queued; an empty outbox takes one message of any size. */
  get room(): number {
    return Math.max(0, this.#boundBytes - this.queuedBytes);
  }

  get framing(): Framing {
    return this.#framing;
  }

  /** True when the socket will emit 'drain'. */
  get needsDrain(): boolean {
    return this.#socket.writableNeedDrain;
  }

  /** Queues a whole message. */
  send(wire: string): void {
    this.begin(wire.length);
    this.text(wire);
    this.end();
  }

  /** Starts a message of exactly `bytes` bytes; `text` and `copy` fill it, `end` closes it. */
  begin(bytes: number): void {
    const need = bytes + MAX_FRAME_HEAD + 1;
    this.total += bytes;
    if (this.#page.length - this.#at < need) this.#nextPage(need);
    if (this.#framing === 'lines') return;
    const page = this.#page;
    let at = this.#at;
    page[at++] = 0x81;
    if (bytes < 126) page[at++] = bytes;
    else if (bytes < 65536) {
      page[at++] = 126;
      page[at++] = bytes >>> 8;
      page[at++] = bytes & 0xff;
    } else {
      page[at++] = 127;
      page.writeUInt32BE(Math.floor(bytes / 0x1_0000_0000), at);
      page.writeUInt32BE(bytes >>> 0, at + 4);
      at += 8;
    }
    this.#at = at;
  }

  text(wire: string): void {
    this.#at += this.#page.latin1Write(wire, this.#at);
  }

  copy(from: Buffer, start: number, end: number): void {
    this.#at += from.copy(this.#page, this.#at, start, end);
  }

  end(): void {
    if (this.#framing === 'lines') this.#page[this.#at++] = 10;
  }

  /** Hands everything to the socket in one write. */
  flush(): void {
    if (this.#at === 0) return;
    const page = this.#page;
    const bytes = this.#at;
    this.#at = 0;
    this.#page = NO_PAGE;
    if (this.tap) this.tap(page.subarray(0, bytes));
    if (this.#socket.destroyed || this.#socket.writableEnded) giveBack(page);
    else this.#socket.write(page.subarray(0, bytes), () => giveBack(page));
  }

  #nextPage(need: number): void {
    this.flush();
    this.#page =
      need <= PAGE_BYTES ? (freePages.pop() ?? Buffer.allocUnsafeSlow(PAGE_BYTES)) : Buffer.allocUnsafeSlow(need);
  }
}
