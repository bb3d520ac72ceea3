/** A byte stream with newline-delimited JSON: a Unix socket. */
import '../../storage/latin1.ts';
import { isUtf8 } from 'node:buffer';
import type { Socket } from 'node:net';
import { LineReader } from '../../protocol/line-reader.ts';
import { rpcError } from '../../protocol/error.ts';
import { errorText } from '../../protocol/json-rpc.ts';
import { stringifyWire } from '../../protocol/wire-text.ts';
import { boundHit } from '../bounds.ts';
import { Connection, type Identity } from '../connection.ts';
import type { House } from '../house.ts';
import { Outbox } from './outbox.ts';

export function serveLineSocket(house: House, identity: Identity, socket: Socket): void {
  const { clientBufferBytes, maxMessageBytes } = house.config;
  const outbox = new Outbox(socket, 'lines', clientBufferBytes);
  const close = (): void => {
    outbox.flush();
    socket.end();
    setTimeout(() => socket.destroy(), 1000).unref();
  };
  const read = (on: boolean): void => void (on ? socket.resume() : socket.pause());
  const connection = new Connection(house, { outbox, close, read }, identity);
  const reader = new LineReader(maxMessageBytes, {
    line: (wire) => {
      if (isUtf8(Buffer.from(wire, 'latin1'))) connection.receive(wire);
      else {
        connection.send(errorText('null', stringifyWire(rpcError('parse_error', 'the line is not valid UTF-8'))));
        connection.kick();
      }
    },
    oversized: (head, bytes) => {
      boundHit('message_size');
      connection.oversized(head, bytes);
    },
  });
  socket.on('data', (chunk: Buffer) => reader.push(chunk.latin1Slice()));
  socket.on('end', () => reader.end());
  socket.on('drain', () => connection.drained());
  socket.on('error', (error) => house.logger.info({ err: error.message, connection: connection.id }, 'socket error'));
  socket.on('close', () => connection.closed());
  watchTaking(socket, house.config.heartbeatMs);
}

/**
 * There is no ping on a line protocol, and the kernel tells when a peer is gone. What is left is one that stands still:
 * it has missed two heartbeats when bytes have waited for it that long and it took none.
 */
function watchTaking(socket: Socket, heartbeatMs: number): void {
  let seenBytes = -1;
  let missed = 0;
  const timer = setInterval(() => {
    const taken = socket.bytesWritten - socket.writableLength;
    if (socket.writableLength === 0 || taken !== seenBytes) missed = 0;
    else if (++missed >= 2) {
      boundHit('heartbeat');
      socket.destroy();
    }
    seenBytes = taken;
  }, heartbeatMs);
  socket.on('close', () => clearInterval(timer));
}
