/**
 * TCP peers that have not been admitted: each has `HANDSHAKE_MS` for its TLS handshake and its request, whatever it
 * sends meanwhile. Node's own header timeout is looked at every 30 s only.
 */
import type { Socket } from 'node:net';
import { HANDSHAKE_MS, boundHit } from '../bounds.ts';
import type { Logger } from '../log.ts';
import type { PeerLimits } from './peer-limits.ts';

type Peer = Pick<Socket, 'remoteAddress' | 'remotePort'>;

export class Strangers {
  readonly #limits: PeerLimits;
  readonly #logger: Logger;
  /** By address and port: a TLS socket and the socket below it are the same peer. */
  readonly #waiting = new Map<string, () => void>();

  constructor(limits: PeerLimits, logger: Logger) {
    this.#limits = limits;
    this.#logger = logger;
  }

  /** A new connection. @param plain an HTTP answer can be read by the peer */
  arrive(socket: Socket, plain: boolean): void {
    socket.on('error', () => undefined);
    const turned = this.#limits.arrive(socket.remoteAddress ?? '');
    if (turned) {
      boundHit(turned === 'rate' ? 'address_rate' : 'handshakes');
      this.#logger.debug({ peer: socket.remoteAddress, turned }, 'connection closed unread');
      if (plain) refuse(socket, 503, 'Too Many Attempts');
      else socket.destroy();
      return;
    }
    const key = keyOf(socket);
    const timer = setTimeout(() => {
      boundHit('handshakes');
      socket.destroy();
    }, HANDSHAKE_MS);
    const done = (): void => {
      if (!this.#waiting.delete(key)) return;
      clearTimeout(timer);
      this.#limits.left();
    };
    this.#waiting.set(key, done);
    socket.once('close', done);
  }

  /** It showed what it needs; it costs its address nothing. */
  admitted(socket: Peer): void {
    this.#limits.forgive(socket.remoteAddress ?? '');
    this.#waiting.get(keyOf(socket))?.();
  }

  forgive(socket: Peer): void {
    this.#limits.forgive(socket.remoteAddress ?? '');
  }
}

function keyOf(socket: Peer): string {
  return `${socket.remoteAddress} ${socket.remotePort}`;
}

/** Answers with an HTTP status and ends, also when the peer does not. */
export function refuse(socket: Socket, status: number, reason: string): void {
  socket.on('error', () => undefined);
  socket.end(`HTTP/1.1 ${status} ${reason}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
  setTimeout(() => socket.destroy(), 1000).unref();
}
