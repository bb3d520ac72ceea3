/** The server's side of the control socket: one command a connection. */
import { chmodSync, rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { CommandError } from '../cli/exit-code.ts';
import type { Logger } from '../log.ts';
import { controlAddress } from './control-address.ts';
import type { ControlReply, ControlRequest, Print } from './control-protocol.ts';

export type RunControl = (request: ControlRequest, print: Print) => Promise<void>;

export interface ControlServer {
  close(): Promise<void>;
}

const MAX_REQUEST_CHARACTERS = 64 * 1024;
const REQUEST_MS = 10_000;

/** The store's lock is ours, so a socket that lies there is nobody's. Undefined when there can be none. */
export async function listenForControl(
  storeDir: string,
  logger: Logger,
  run: RunControl,
): Promise<ControlServer | undefined> {
  const address = controlAddress(storeDir);
  if (!address) {
    logger.warn('no control socket: the path of the store is too long');
    return undefined;
  }
  rmSync(address.path, { force: true });
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => undefined);
    void serve(socket, logger, run);
  });
  try {
    await listening(server, address.path);
    chmodSync(address.path, 0o600);
  } catch (error) {
    logger.warn({ err: error }, 'no control socket');
    address.close();
    return undefined;
  }
  server.on('error', (error) => logger.warn({ err: error }, 'control socket'));
  return {
    close: () =>
      new Promise((resolve) => {
        server.close(() => {
          address.close();
          resolve();
        });
        for (const socket of sockets) socket.destroySoon();
      }),
  };
}

function listening(server: Server, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(path, () => {
      server.off('error', reject);
      resolve();
    });
  });
}

async function serve(socket: Socket, logger: Logger, run: RunControl): Promise<void> {
  // Who asks may go away at any moment: then nothing of this is read.
  const reply = (value: ControlReply): void => void socket.write(`${JSON.stringify(value)}\n`);
  const line = await firstLine(socket);
  if (line === undefined) return;
  try {
    const request = JSON.parse(line) as ControlRequest;
    logger.info({ command: request.command }, 'control');
    await run(request, (text) => reply({ line: text }));
    reply({ done: true });
  } catch (error) {
    if (error instanceof CommandError)
      reply({ error: { reason: error.reason, message: error.message, hint: error.hint } });
    else {
      logger.error({ err: error }, 'control command failed');
      reply({ error: { reason: 'failure', message: String(error) } });
    }
  }
  socket.end();
}

/** Undefined when the socket is closed before it came, or it is too long in coming or in itself. */
function firstLine(socket: Socket): Promise<string | undefined> {
  return new Promise((resolve) => {
    let text = '';
    socket.setTimeout(REQUEST_MS, () => socket.destroy());
    socket.once('close', () => resolve(undefined));
    socket.setEncoding('utf8').on('data', (piece: string) => {
      text += piece;
      const end = text.indexOf('\n');
      if (end < 0 && text.length <= MAX_REQUEST_CHARACTERS) return;
      socket.setTimeout(0);
      socket.removeAllListeners('data').resume();
      if (end < 0) socket.destroy();
      else resolve(text.slice(0, end));
    });
  });
}
