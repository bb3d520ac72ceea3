/**
 * Readers in other processes. They have no part in the store's own lock file (see `read-view.ts`), so LMDB does not know
 * of them and would use the pages that they read for something else. Instead each says `hold` on the socket of the lock,
 * and as long as it stays connected and gives a sign of life, the owner keeps a read transaction of that moment open.
 *
 *   owner  -> {"pid":1234}
 *   reader -> hold      (nothing: it only wanted to know who has the store)
 *   owner  -> held, or busy
 *   reader -> .         every 5 s
 */
import type { Socket } from 'node:net';

export const HOLD = 'hold\n';
export const HELD = 'held\n';
export const BUSY = 'busy\n';
/** A reader that stands still must not make the file grow. */
const SILENT_MS = 30_000;
/** Each takes a reader slot of the store. */
const MAX_HOLDS = 16;

/** Keeps the pages of this moment; the result lets them go. */
type Keep = () => () => void;

export class PageHolds {
  readonly #sockets = new Set<Socket>();
  readonly #waiting = new Set<Socket>();
  readonly #held = new Map<Socket, () => void>();
  #keep: Keep | undefined;

  /** The store is open. */
  serve(keep: Keep): void {
    this.#keep = keep;
    for (const socket of this.#waiting) this.#hold(socket);
    this.#waiting.clear();
  }

  /** A connection to the socket of the lock. */
  greet(socket: Socket): void {
    this.#sockets.add(socket);
    socket.unref();
    socket.on('error', () => undefined);
    socket.on('close', () => this.#gone(socket));
    socket.setTimeout(SILENT_MS, () => socket.destroy());
    let asked = '';
    socket.on('data', (bytes) => {
      if (asked.length >= HOLD.length) return;
      asked += bytes.toString('latin1');
      if (asked.startsWith(HOLD)) this.#hold(socket);
    });
    socket.write(`{"pid":${process.pid}}\n`);
  }

  /** Lets everything go; nobody is greeted any more. */
  end(): void {
    this.#keep = undefined;
    for (const socket of this.#sockets) {
      this.#gone(socket);
      socket.destroy();
    }
  }

  #hold(socket: Socket): void {
    if (!this.#keep) this.#waiting.add(socket);
    else if (this.#held.size >= MAX_HOLDS) socket.end(BUSY);
    else {
      this.#held.set(socket, this.#keep());
      socket.write(HELD);
    }
  }

  #gone(socket: Socket): void {
    this.#sockets.delete(socket);
    this.#waiting.delete(socket);
    this.#held.get(socket)?.();
    this.#held.delete(socket);
  }
}
