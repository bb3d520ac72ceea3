/** A Unix socket with newline-delimited JSON. */
import '../../storage/latin1.ts';
import { type Socket, connect } from 'node:net';
import type { ErrorKind } from '../../protocol/error.ts';
import { LineReader } from '../../protocol/line-reader.ts';
import type { ClientTransport, OpenTransport, TransportEvents } from './client-transport.ts';

const MAX_LINE_BYTES = 1024 ** 3;
const CLOSE_MS = 1000;

/** @param connected gives the connected socket, or says why there is none; the path itself by default */
export function openUnixTransport(path: string, connected = () => connectTo(path)): OpenTransport {
  return (events) => {
    let socket: Socket | undefined;
    let over = false;
    let waiting: string[] = [];
    let paused = false;
    const closed = (reason: string): void => {
      if (over) return;
      over = true;
      events.closed({ kind: 'lost', reason });
    };
    connected().then(
      (made) => {
        if (over) {
          made.destroy();
          return;
        }
        socket = made;
        listen(made, events, (reason) => closed(`${path}: ${reason}`));
        if (paused) made.pause();
        events.opened();
        for (const wire of waiting) made.write(`${wire}\n`, 'latin1');
        waiting = [];
      },
      (error: NodeJS.ErrnoException) => {
        if (!isFinal(error)) closed(error.code === undefined ? error.message : `${path}: ${error.code}`);
        else if (!over) {
          over = true;
          events.closed({ kind: 'refused', reason: error.message, error: error.kind });
        }
      },
    );
    const transport: ClientTransport = {
      send: (wire) => {
        if (socket) sendLater(socket, wire);
        else waiting.push(wire);
      },
      ping: () => false,
      get bufferedBytes() {
        return socket?.writableLength ?? 0;
      },
      pause: () => {
        paused = true;
        socket?.pause();
      },
      resume: () => {
        paused = false;
        socket?.resume();
      },
      close: () => {
        over = true;
        socket?.end();
        setTimeout(() => socket?.destroy(), CLOSE_MS).unref();
      },
      cut: () => {
        over = true;
        socket?.destroy();
      },
    };
    return transport;
  };
}

/** An error that says of itself that trying again would not help, and what the local side is told. */
export interface FinalError {
  readonly final: true;
  readonly kind: ErrorKind;
}

function isFinal(error: object): error is FinalError {
  return 'final' in error && error.final === true;
}

/** What is sent in one tick leaves in one write. */
function sendLater(socket: Socket, wire: string): void {
  if (socket.writableCorked === 0) {
    socket.cork();
    process.nextTick(() => socket.uncork());
  }
  socket.write(`${wire}\n`, 'latin1');
}

export function connectTo(path: string): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect(path);
    socket.once('error', reject);
    socket.once('connect', () => {
      socket.off('error', reject);
      resolve(socket);
    });
  });
}

function listen(socket: Socket, events: TransportEvents, closed: (reason: string) => void): void {
  let failure = 'the connection was closed';
  const reader = new LineReader(MAX_LINE_BYTES, {
    line: (wire) => events.message(wire),
    oversized: () => socket.destroy(),
  });
  socket.on('data', (chunk: Buffer) => {
    events.alive();
    reader.push(chunk.latin1Slice());
  });
  socket.on('error', (error: NodeJS.ErrnoException) => {
    failure = error.code ?? error.message;
  });
  socket.on('close', () => closed(failure));
}
