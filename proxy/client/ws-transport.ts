/** WebSocket in Node, by `ws`: it sees pings, can stop reading, and tells why a server refused. */
import '../../storage/latin1.ts';
import type { IncomingMessage } from 'node:http';
import { type RawData, WebSocket } from 'ws';
import type { ClientTransport, OpenTransport, TransportEnd } from './client-transport.ts';
import type { WebSocketTarget } from './websocket-transport.ts';

const MAX_PAYLOAD = 1024 ** 3;
/** Sending a token again does not make it right. 503 and the others may pass. */
const FINAL = new Set([400, 401, 403, 404, 405, 426]);
const CLOSE_MS = 1000;

export function openWsTransport(target: WebSocketTarget): OpenTransport {
  return (events) => {
    const { url, token } = target;
    const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
    const socket = new WebSocket(url, ['acp'], { headers, perMessageDeflate: false, maxPayload: MAX_PAYLOAD });
    let over = false;
    let failure = '';
    const end = (how: TransportEnd): void => {
      if (over) return;
      over = true;
      events.closed(how);
    };
    socket.on('open', () => events.opened());
    socket.on('message', (data: RawData) => events.message(wireOf(data)));
    socket.on('ping', () => events.alive());
    socket.on('pong', () => events.alive());
    socket.on('error', (error: NodeJS.ErrnoException) => {
      const { code } = error;
      failure = code ?? error.message;
      if (code !== undefined && UNTRUSTED.has(code))
        failure = `${code}; NODE_EXTRA_CA_CERTS=FILE names an authority to trust`;
    });
    socket.on('unexpected-response', (request, response: IncomingMessage) => {
      const status = response.statusCode ?? 0;
      const reason = `${url} answered ${status} ${response.statusMessage ?? ''}`.trim();
      request.destroy();
      end({ kind: FINAL.has(status) ? 'refused' : 'lost', reason });
    });
    socket.on('close', (code, reason) => {
      const told = reason.toString() || failure || 'the connection was closed';
      end({ kind: 'lost', reason: `${url}: ${told}`, code });
    });
    const transport: ClientTransport = {
      send: (wire) => {
        if (socket.readyState === WebSocket.OPEN) socket.send(Buffer.from(wire, 'latin1'), { binary: false });
      },
      ping: () => {
        if (socket.readyState === WebSocket.OPEN) socket.ping();
        return true;
      },
      get bufferedBytes() {
        return socket.bufferedAmount;
      },
      pause: () => {
        if (socket.readyState === WebSocket.OPEN) socket.pause();
      },
      resume: () => socket.resume(),
      close: () => {
        over = true;
        socket.close();
        setTimeout(() => socket.terminate(), CLOSE_MS).unref();
      },
      cut: () => {
        over = true;
        socket.terminate();
      },
    };
    return transport;
  };
}

/** What Node says of a certificate whose authority it does not know. */
const UNTRUSTED = new Set([
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
]);

function wireOf(data: RawData): string {
  if (Buffer.isBuffer(data)) return data.latin1Slice();
  return Buffer.concat(Array.isArray(data) ? data : [Buffer.from(data)]).latin1Slice();
}
