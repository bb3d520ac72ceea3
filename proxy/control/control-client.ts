/**
 * The CLI's side of the control socket. A command may take as long as it takes, but a server that begins no answer is
 * asked beside it whether it lives; every version answers `status` at once.
 */
import { type Socket, connect } from 'node:net';
import { createInterface } from 'node:readline';
import { storeOwner } from '../../storage/store-lock.ts';
import { CommandError } from '../cli/exit-code.ts';
import { controlAddress } from './control-address.ts';
import type { ControlReply, ControlRequest, Print } from './control-protocol.ts';

/** How long a server may be silent before it is asked for its status, and then again. */
const SILENCE_MS = 4000;

/**
 * Has the running server do it. False when there is none: nobody listens.
 * @throws CommandError what the server says, that it went away in the middle, or that it does not answer at all
 */
export async function askServer(
  storeDir: string,
  request: ControlRequest,
  print: Print,
  silenceMs: number = SILENCE_MS,
): Promise<boolean> {
  const found = await connected(storeDir);
  if (!found) return false;
  const { socket, leave } = found;
  const lines = createInterface({ input: socket });
  let heard = false;
  let frozen = false;
  const giveUp = (): void => {
    if (heard) return;
    frozen = true;
    lines.close();
  };
  const silent = setTimeout(() => void lives(storeDir, silenceMs).then((alive) => alive || giveUp()), silenceMs);
  try {
    socket.write(`${JSON.stringify(request)}\n`);
    for await (const line of lines) {
      heard = true;
      const reply = JSON.parse(line) as ControlReply;
      if ('line' in reply) print(reply.line);
      else if ('done' in reply) return true;
      else throw new CommandError(reply.error.reason, reply.error.message, reply.error.hint);
    }
  } finally {
    clearTimeout(silent);
    leave();
  }
  if (frozen) throw await noAnswer(storeDir);
  throw new CommandError(
    'failure',
    'the server went away before it had answered',
    'see whether it was done, then try again',
  );
}

interface Connected {
  readonly socket: Socket;
  readonly leave: () => void;
}

/** Undefined when nobody listens. */
async function connected(storeDir: string): Promise<Connected | undefined> {
  const address = controlAddress(storeDir);
  if (!address) return undefined;
  const socket = connect(address.path);
  const leave = (): void => {
    socket.destroy();
    address.close();
  };
  try {
    const there = await new Promise<boolean>((resolve, reject) => {
      socket.once('connect', () => resolve(true));
      socket.once('error', (error: NodeJS.ErrnoException) => {
        if (error.code === 'ENOENT' || error.code === 'ECONNREFUSED' || error.code === 'ENOTSOCK') resolve(false);
        else reject(error);
      });
    });
    if (there) {
      socket.on('error', () => undefined);
      return { socket, leave };
    }
  } catch (error) {
    leave();
    throw error;
  }
  leave();
  return undefined;
}

/** Whether the server says anything, or is gone; a command of its own then ends by itself. */
async function lives(storeDir: string, patienceMs: number): Promise<boolean> {
  const found = await connected(storeDir).catch(() => undefined);
  if (!found) return true;
  const { socket, leave } = found;
  const answered = new Promise<boolean>((resolve) => {
    socket.once('data', () => resolve(true));
    socket.once('close', () => resolve(true));
    setTimeout(() => resolve(false), patienceMs).unref();
  });
  socket.write(`${JSON.stringify({ command: 'status' } satisfies ControlRequest)}\n`);
  return answered.finally(leave);
}

async function noAnswer(storeDir: string): Promise<CommandError> {
  const pid = await storeOwner(storeDir).catch(() => undefined);
  const who = pid === undefined || pid === 0 ? '' : ` (process ${pid})`;
  return new CommandError(
    'failure',
    `the server of ${storeDir}${who} does not answer`,
    'it is stopped or overloaded: let it go on, or end it, then try again',
  );
}
