/** Listening: TCP for WebSocket and the probes, Unix sockets for lines. */
import { chmodSync, lstatSync, rmSync, statSync } from 'node:fs';
import { type IncomingMessage, type Server as HttpServer, type ServerResponse, createServer } from 'node:http';
import { type Server as HttpsServer, createServer as createHttpsServer } from 'node:https';
import { type AddressInfo, type Server, type Socket, connect, createServer as createNetServer } from 'node:net';
import { dirname } from 'node:path';
import type { WebSocketServer } from 'ws';
import { makeDirectories } from '../../storage/store-lock.ts';
import { HANDSHAKE_MS, boundHit } from '../bounds.ts';
import { CommandError } from '../cli/exit-code.ts';
import type { ListenAddress } from '../config.ts';
import type { Identity } from '../connection.ts';
import type { House } from '../house.ts';
import { type Refused, answerHttp } from '../http/answer-http.ts';
import { admit } from './access.ts';
import type { Door } from './door.ts';
import { serveLineSocket } from './line-socket.ts';
import { Strangers, refuse } from './strangers.ts';
import { serveWebSocket } from './websocket.ts';

export interface Listener {
  /** As a client is given it: `ws://127.0.0.1:43121/acp`, `wss://...`, `unix:/path`. */
  readonly endpoint: string;
  close(): Promise<void>;
}

const LOCAL: Identity = { role: 'controller' };

/** @throws CommandError (usage) when the address cannot be used */
export function listen(
  address: ListenAddress,
  house: House,
  webSockets: WebSocketServer,
  door: Door,
): Promise<Listener> {
  return address.kind === 'tcp' ? listenTcp(address, house, webSockets, door) : listenUnix(address.path, house, door);
}

async function listenTcp(
  address: { readonly host: string; readonly port: number },
  house: House,
  webSockets: WebSocketServer,
  door: Door,
): Promise<Listener> {
  const strangers = new Strangers(door.limits, house.logger);
  const answer = (request: IncomingMessage, response: ServerResponse): void => {
    const refused = (): Refused => {
      const admitted = admit(door.rule, request);
      if (!('status' in admitted)) return undefined;
      house.metrics.connectionRefused(admitted.status);
      return admitted;
    };
    // One request a connection: a stranger's time is over soon.
    response.setHeader('connection', 'close');
    response.once('finish', () => {
      if (response.statusCode !== 401 && response.statusCode !== 403) strangers.forgive(request.socket);
    });
    void answerHttp(house, request, response, refused);
  };
  const server = httpServer(door, answer);
  server.prependListener('connection', (socket: Socket) => strangers.arrive(socket, door.tls === undefined));
  server.on('upgrade', (request: IncomingMessage, socket: Socket, head: Buffer) => {
    const admitted = pathOf(request) === '/acp' ? admit(door.rule, request) : { status: 404, reason: 'Not Found' };
    if ('status' in admitted) {
      house.logger.info({ status: admitted.status, peer: socket.remoteAddress }, 'connection refused');
      house.metrics.connectionRefused(admitted.status);
      refuse(socket, admitted.status, admitted.reason);
    } else if (!door.limits.connect()) {
      boundHit('connections');
      house.logger.warn({ peer: socket.remoteAddress }, 'connection refused: --max-connections');
      refuse(socket, 503, 'Too Many Connections');
    } else {
      strangers.admitted(socket);
      socket.once('close', () => door.limits.closed());
      serveWebSocket(webSockets, house, admitted, request, socket, head);
    }
  });
  const host = address.host.replace(/^\[|\]$/g, '');
  await started(server, () => server.listen(address.port, host), `${address.host}:${address.port}`);
  const { port } = server.address() as AddressInfo;
  const shown = host.includes(':') ? `[${host}]` : host;
  const scheme = door.tls === undefined ? 'ws' : 'wss';
  return { endpoint: `${scheme}://${shown}:${port}/acp`, close: () => closed(server) };
}

function httpServer(
  door: Door,
  answer: (request: IncomingMessage, response: ServerResponse) => void,
): HttpServer | HttpsServer {
  const options = { headersTimeout: HANDSHAKE_MS, requestTimeout: HANDSHAKE_MS, maxHeaderSize: 16 * 1024 };
  const { tls } = door;
  if (!tls) return createServer(options, answer);
  const server = createHttpsServer(
    { ...options, cert: tls.cert, key: tls.key, minVersion: 'TLSv1.2', handshakeTimeout: HANDSHAKE_MS },
    answer,
  );
  // A peer that does not speak TLS is not worth a line; the limits count it.
  server.on('tlsClientError', (_error, socket) => socket.destroy());
  door.secured(server);
  return server;
}

function pathOf(request: IncomingMessage): string {
  return (request.url ?? '/').split('?', 1)[0] ?? '/';
}

/** In a directory that only we can enter; a socket file that nobody answers on is replaced. */
async function listenUnix(path: string, house: House, door: Door): Promise<Listener> {
  preparePrivate(dirname(path));
  if (await isStale(path)) rmSync(path);
  const server = createNetServer((socket) => {
    if (!door.limits.connect()) {
      boundHit('connections');
      house.logger.warn('connection refused: --max-connections');
      socket.destroy();
      return;
    }
    socket.once('close', () => door.limits.closed());
    serveLineSocket(house, LOCAL, socket);
  });
  await started(server, () => server.listen(path), `unix:${path}`);
  chmodSync(path, 0o600);
  return { endpoint: `unix:${path}`, close: () => closed(server) };
}

/** What can be known before anything is started. @throws CommandError (usage) */
export function prepareAddress(address: ListenAddress): void {
  if (address.kind === 'unix') preparePrivate(dirname(address.path));
}

/** Whoever can reach the socket is the user: its directory is what keeps others out. */
function preparePrivate(dir: string): void {
  try {
    makeDirectories(dir);
  } catch (error) {
    throw new CommandError('usage', `--listen: the directory ${dir} cannot be made: ${(error as Error).message}`);
  }
  const { mode, uid } = statSync(dir);
  const self = process.getuid?.();
  if (self !== undefined && uid !== self) {
    throw new CommandError('usage', `--listen: the directory ${dir} of the Unix socket belongs to another user`);
  }
  if ((mode & 0o077) !== 0) {
    const shown = (mode & 0o7777).toString(8).padStart(4, '0');
    throw new CommandError(
      'usage',
      `--listen: others can enter the directory ${dir} of the Unix socket (mode ${shown})`,
      'a Unix socket needs no token, so put it in a directory of its own with mode 0700',
    );
  }
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

function started(server: Server | HttpServer, start: () => void, shown: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const failed = (error: NodeJS.ErrnoException): void => {
      reject(new CommandError('usage', `--listen ${shown} cannot be used: ${error.code ?? error.message}`));
    };
    server.once('error', failed);
    server.once('listening', () => {
      server.off('error', failed);
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
