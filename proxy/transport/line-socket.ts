/** A byte stream with newline-delimited JSON: a Unix socket. */
import '../../storage/latin1.ts';
import { isUtf8 } from 'node:buffer';
import type { Socket } from 'node:net';
import { LineReader } from '../../protocol/line-reader.ts';
import { rpcError } from '../../protocol/error.ts';
import { errorText } from '../../protocol/json-rpc.ts';
import { stringifyWire } from '../../protocol/wire-text.ts';
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
  const connection = new Connection(house, { outbox, close }, identity);
  const reader = new LineReader(maxMessageBytes, {
    line: (wire) => {
      if (isUtf8(Buffer.from(wire, 'latin1'))) connection.receive(wire);
      else {
        connection.send(errorText('null', stringifyWire(rpcError('parse_error', 'the line is not valid UTF-8'))));
        connection.kick();
      }
    },
    oversized: (head, bytes) => connection.oversized(head, bytes),
  });
  socket.on('data', (chunk: Buffer) => reader.push(chunk.latin1Slice()));
  socket.on('end', () => reader.end());
  socket.on('drain', () => connection.drained());
  socket.on('error', (error) => house.logger.info({ err: error.message, connection: connection.id }, 'socket error'));
  socket.on('close', () => connection.closed());
}
