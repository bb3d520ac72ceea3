/** A TCP proxy that is a bad network. */
import { type AddressInfo, type Socket, connect, createServer } from 'node:net';
import type { Scope } from './scope.ts';

interface Pair {
  readonly client: Socket;
  readonly server: Socket;
  /** Nothing passes any more; whoever looks sees an open connection. */
  dead: boolean;
}

export class NetworkProxy {
  /** Where new connections go. */
  targetPort = 0;
  /** New connections are closed at once. */
  refusing = false;
  /** Each new connection waits so long before it goes on; they overtake each other. Milliseconds. */
  acceptDelayMs: () => number = () => 0;
  /** Each piece of data waits so long. Milliseconds. */
  delayMs = 0;
  /** Bytes that pass in one piece, and a pause of 1 ms after each; 0: all. */
  throttleBytes = 0;
  accepted = 0;
  port = 0;
  readonly #pairs = new Set<Pair>();

  static async listen(scope: Scope, targetPort: number): Promise<NetworkProxy> {
    const proxy = new NetworkProxy();
    proxy.targetPort = targetPort;
    const server = createServer((client) => {
      client.on('error', () => undefined);
      if (proxy.refusing) {
        client.resetAndDestroy();
        return;
      }
      setTimeout(() => proxy.#join(client), proxy.acceptDelayMs());
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    proxy.port = (server.address() as AddressInfo).port;
    scope.defer(() => {
      server.close();
      for (const { client, server: other } of proxy.#pairs) {
        client.destroy();
        other.destroy();
      }
    });
    return proxy;
  }

  /** Connections that still carry data. */
  get open(): number {
    return [...this.#pairs].filter(({ dead }) => !dead).length;
  }

  /** Resets every connection. Returns how many there were. */
  cut(): number {
    const pairs = [...this.#pairs].filter(({ dead }) => !dead);
    for (const { client, server } of pairs) {
      client.resetAndDestroy();
      server.resetAndDestroy();
    }
    return pairs.length;
  }

  /** From now on nothing passes on the present connections, and nobody is told. Returns how many there were. */
  halfOpen(): number {
    const pairs = [...this.#pairs].filter(({ dead }) => !dead);
    for (const pair of pairs) {
      pair.dead = true;
      pair.client.pause();
      pair.server.pause();
    }
    return pairs.length;
  }

  /** Nothing passes for a while, then everything that was held back. */
  stall(ms: number): void {
    for (const { client, server, dead } of this.#pairs) {
      if (dead) continue;
      client.pause();
      server.pause();
      setTimeout(() => {
        client.resume();
        server.resume();
      }, ms);
    }
  }

  #join(client: Socket): void {
    if (client.destroyed) return;
    const server = connect(this.targetPort, '127.0.0.1');
    const pair: Pair = { client, server, dead: false };
    this.#pairs.add(pair);
    this.accepted++;
    client.setNoDelay(true);
    server.setNoDelay(true);
    this.#carry(pair, client, server);
    this.#carry(pair, server, client);
  }

  #carry(pair: Pair, from: Socket, to: Socket): void {
    let queue = Promise.resolve();
    from.on('data', (bytes: Buffer) => {
      if (pair.dead) return;
      if (this.delayMs === 0 && this.throttleBytes === 0) {
        void queue.then(() => !pair.dead && to.write(bytes));
        return;
      }
      queue = queue.then(() => this.#slowly(pair, bytes, to));
    });
    from.on('error', () => undefined);
    from.on('close', () => {
      this.#pairs.delete(pair);
      if (!pair.dead) to.destroy();
    });
    from.on('end', () => !pair.dead && void queue.then(() => to.end()));
  }

  async #slowly(pair: Pair, bytes: Buffer, to: Socket): Promise<void> {
    if (this.delayMs > 0) await sleep(this.delayMs);
    const piece = this.throttleBytes || bytes.length;
    for (let at = 0; at < bytes.length && !pair.dead && !to.destroyed; at += piece) {
      to.write(bytes.subarray(at, at + piece));
      if (this.throttleBytes > 0) await sleep(1);
    }
  }
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
