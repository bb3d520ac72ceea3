/** Listening: TCP for WebSocket and the probes, Unix sockets for lines. */
import { chmodSync, lstatSync, mkdirSync, rmSync } from 'node:fs';
import { type IncomingMessage, type Server as HttpServer, createServer as createHttpServer } from 'node:http';
import { type AddressInfo, type Server, type Socket, connect, createServer } from 'node:net';
import { dirname } from 'node:path';
import type { WebSocketServer } from 'ws';
import type { Identity } from '../connection.ts';
import type { House } from '../house.ts';
import { type Refused, answerHttp } from '../http/answer-http.ts';
import type { ListenAddress } from '../config.ts';
import { type AccessRule, admit } from './access.ts';
import { serveLineSocket } from './line-socket.ts';
import { serveWebSocket } from './websocket.ts';

export interface Listener {
  /** As a client is given it: `ws://127.0.0.1:43121/acp`, `unix:/path`. */
  readonly endpoint: string;
  close(): Promise<void>;
}

const LOCAL: Identity = { role: 'controller' };
const HANDSHAKE_MS = 10_000;

export function listen(
  address: ListenAddress,
  house: House,
  webSockets: WebSocketServer,
  rule: AccessRule,
): Promise<Listener> {
  return address.kind === 'tcp' ? listenTcp(address, house, webSockets, rule) : listenUnix(address.path, house);
}

async function listenTcp(
  address: { readonly host: string; readonly port: number },
  house: House,
  webSockets: WebSocketServer,
  rule: AccessRule,
): Promise<Listener> {
  const server = createHttpServer(
    { headersTimeout: HANDSHAKE_MS, requestTimeout: HANDSHAKE_MS },
    (request, response) => {
      const refused = (): Refused => {
        const admitted = admit(rule, request);
        return 'status' in admitted ? admitted : undefined;
      };
      void answerHttp(house, request, response, refused);
    },
  );
  server.on('upgrade', (request: IncomingMessage, socket: Socket, head: Buffer) => {
    const admitted = pathOf(request) === '/acp' ? admit(rule, request) : { status: 404, reason: 'Not Found' };
    if ('status' in admitted) refuse(socket, admitted.status, admitted.reason);
    else serveWebSocket(webSockets, house, admitted, request, socket, head);
  });
  const host = address.host.replace(/^\[|\]$/g, '');
  await started(server, () => server.listen(address.port, host));
  const { port } = server.address() as AddressInfo;
  const shown = host.includes(':') ? `[${host}]` : host;
  return { endpoint: `ws://${shown}:${port}/acp`, close: () => closed(server) };
}

function pathOf(request: IncomingMessage): string {
  return (request.url ?? '/').split('?', 1)[0] ?? '/';
}

function refuse(socket: Socket, status: number, reason: string): void {
  socket.on('error', () => undefined);
  socket.end(`HTTP/1.1 ${status} ${reason}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
}

/** In a 0700 directory; a socket file that nobody answers on is replaced. */
async function listenUnix(path: string, house: House): Promise<Listener> {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  if (await isStale(path)) rmSync(path);
  const server = createServer((socket) => serveLineSocket(house, LOCAL, socket));
  await started(server, () => server.listen(path));
  chmodSync(path, 0o600);
  return { endpoint: `unix:${path}`, close: () => closed(server) };
}

function isStale(path: string): Promise<boolean> {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (!found?.isSocket()) return Promise.resolve(false);
  return new Promise((resolve) => {
    const probe = connect(path);
    probe.on('connect', () => {
      probe.destroy();
      resolve(false);
    });
    probe.on('error', (error: NodeJS.ErrnoException) => resolve(error.code === 'ECONNREFUSED'));
  });
}

function started(server: Server | HttpServer, start: () => void): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.once('listening', () => {
      server.off('error', reject);
      resolve();
    });
    start();
  });
}

function closed(server: Server | HttpServer): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    if ('closeIdleConnections' in server) server.closeIdleConnections();
  });
}
