/**
 * WebSocket on `/acp`: text frames, one JSON-RPC message each. Frames to the client are written by the outbox straight
 * to the socket; `ws` reads, answers pings and closes. Without compression its control frames fall between ours.
 */
import '../../storage/latin1.ts';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { type RawData, type WebSocket, WebSocketServer } from 'ws';
import { Connection, type Identity } from '../connection.ts';
import type { House } from '../house.ts';
import type { ConnectionDrop } from '../metrics.ts';
import { Outbox } from './outbox.ts';

export const SUBPROTOCOL = 'acp';
/** Room over the limit in which a message is still read, so that its sender is told instead of cut off. */
const OVERSIZE_ROOM = 64 * 1024 * 1024;
const HEAD_BYTES = 4096;
const DROPS: ReadonlyMap<number, ConnectionDrop> = new Map([
  [1003, 'binary_frame'],
  [1009, 'message_too_large'],
  [4408, 'heartbeat'],
]);

export function createWebSocketServer(maxMessageBytes: number): WebSocketServer {
  return new WebSocketServer({
    noServer: true,
    perMessageDeflate: false,
    maxPayload: maxMessageBytes + OVERSIZE_ROOM,
    handleProtocols: (offered) => (offered.has(SUBPROTOCOL) ? SUBPROTOCOL : false),
  });
}

/** Takes an accepted upgrade: from here on it is a connection. */
export function serveWebSocket(
  server: WebSocketServer,
  house: House,
  identity: Identity,
  request: IncomingMessage,
  socket: Socket,
  head: Buffer,
): void {
  server.handleUpgrade(request, socket, head, (ws) => {
    socket.setNoDelay(true);
    // A frame that announces more than is ever read: `ws` closes with 1009 by itself, the contract says 4413.
    const close = ws.close.bind(ws);
    ws.close = (code, reason) => {
      const cause = code === undefined ? undefined : DROPS.get(code);
      if (cause) house.metrics.connectionDropped(cause);
      close(code === 1009 ? 4413 : code, code === 1009 ? 'message too large' : reason);
    };
    const { clientBufferBytes, maxMessageBytes } = house.config;
    const outbox = new Outbox(socket, 'websocket', clientBufferBytes);
    const connection = new Connection(house, { outbox, close: (code, reason) => ws.close(code, reason) }, identity);
    socket.on('drain', () => connection.drained());
    ws.on('message', (data, isBinary) => receive(ws, connection, data, isBinary, maxMessageBytes));
    ws.on('error', (error) => house.logger.info({ err: error.message, connection: connection.id }, 'websocket error'));
    ws.on('close', () => connection.closed());
    watchHeartbeat(ws, socket, house.config.heartbeatMs);
  });
}

function receive(ws: WebSocket, connection: Connection, data: RawData, isBinary: boolean, maxBytes: number): void {
  if (isBinary) {
    ws.close(1003, 'text frames only');
    return;
  }
  const bytes = Buffer.isBuffer(data) ? data : Buffer.concat(Array.isArray(data) ? data : [Buffer.from(data)]);
  if (bytes.length > maxBytes) connection.oversized(bytes.latin1Slice(0, HEAD_BYTES), bytes.length);
  else connection.receive(bytes.latin1Slice());
}

/** Alive is a peer that answered, or whose socket took any byte, since the last ping. */
function watchHeartbeat(ws: WebSocket, socket: Socket, heartbeatMs: number): void {
  let alive = true;
  let missed = 0;
  let seenBytes = 0;
  ws.on('pong', () => {
    alive = true;
  });
  const timer = setInterval(() => {
    const taken = socket.bytesWritten - socket.writableLength + socket.bytesRead;
    if (alive || taken !== seenBytes) missed = 0;
    else if (++missed >= 2) {
      ws.close(4408, 'heartbeat lost');
      socket.destroySoon();
      setTimeout(() => ws.terminate(), 1000).unref();
      return;
    }
    alive = false;
    ws.ping();
    seenBytes = socket.bytesWritten - socket.writableLength + socket.bytesRead;
  }, heartbeatMs);
  ws.on('close', () => clearInterval(timer));
}
