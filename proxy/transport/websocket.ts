/**
 * WebSocket on `/acp`: text frames, one JSON-RPC message each. Frames to the client are written by the outbox straight
 * to the socket; `ws` reads, answers pings and closes. Without compression its control frames fall between ours.
 */
import '../../storage/latin1.ts';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { type RawData, type WebSocket, WebSocketServer } from 'ws';
import { boundHit } from '../bounds.ts';
import { Connection, type Identity } from '../connection.ts';
import type { House } from '../house.ts';
import type { ConnectionDrop } from '../metrics.ts';
import { Outbox } from './outbox.ts';

export const SUBPROTOCOL = 'acp';
/** Room over the limit in which a message is still read, so that its sender is told instead of cut off. */
const OVERSIZE_ROOM = 64 * 1024 * 1024;
const HEAD_BYTES = 4096;
const CLOSE_MS = 2000;
const DROPS: ReadonlyMap<number, ConnectionDrop> = new Map([
  [1003, 'binary_frame'],
  [1009, 'message_too_large'],
  [1013, 'lagging'],
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
      {
        if (code === 1009) boundHit('message_size');
        close(code === 1009 ? 4413 : code, code === 1009 ? 'message too large' : reason);
      }
    };
    const { clientBufferBytes, maxMessageBytes } = house.config;
    const outbox = new Outbox(socket, 'websocket', clientBufferBytes);
    const connection: Connection = new Connection(
      house,
      { outbox, close: (code, reason) => closeSoon(ws, code, reason), read: (on) => (on ? ws.resume() : ws.pause()) },
      identity,
    );
    socket.on('drain', () => connection.drained());
    ws.on('message', (data, isBinary) => receive(ws, connection, data, isBinary, maxMessageBytes));
    ws.on('error', (error) => house.logger.info({ err: error.message, connection: connection.id }, 'websocket error'));
    ws.on('close', () => connection.closed());
    watchHeartbeat(ws, socket, connection, house.config.heartbeatMs);
  });
}

/** A peer that does not answer the close is cut off. */
function closeSoon(ws: WebSocket, code: number, reason: string): void {
  // A paused socket would never show the peer's own close.
  ws.resume();
  ws.close(code, reason);
  setTimeout(() => ws.terminate(), CLOSE_MS).unref();
}

function receive(ws: WebSocket, connection: Connection, data: RawData, isBinary: boolean, maxBytes: number): void {
  if (isBinary) {
    ws.close(1003, 'text frames only');
    return;
  }
  const bytes = Buffer.isBuffer(data) ? data : Buffer.concat(Array.isArray(data) ? data : [Buffer.from(data)]);
  if (bytes.length > maxBytes) boundHit('message_size');
  if (bytes.length > maxBytes) connection.oversized(bytes.latin1Slice(0, HEAD_BYTES), bytes.length);
  else connection.receive(bytes.latin1Slice());
}

/** Alive is a peer that answered, or whose socket took any byte, since the last ping; or that we do not listen to. */
function watchHeartbeat(ws: WebSocket, socket: Socket, connection: Connection, heartbeatMs: number): void {
  let alive = true;
  let missed = 0;
  let seenBytes = 0;
  const taken = (): number => socket.bytesWritten - socket.writableLength + socket.bytesRead;
  ws.on('pong', () => {
    alive = true;
  });
  const timer = setInterval(() => {
    if (alive || connection.waitsForAgent || taken() !== seenBytes) missed = 0;
    else if (++missed >= 2) {
      boundHit('heartbeat');
      closeSoon(ws, 4408, 'heartbeat lost');
      return;
    }
    alive = false;
    ws.ping();
    // With the ping itself, which is taken at once by an empty socket.
    seenBytes = taken();
  }, heartbeatMs);
  ws.on('close', () => clearInterval(timer));
}
