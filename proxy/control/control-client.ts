/** The CLI's side of the control socket. */
import { connect } from 'node:net';
import { createInterface } from 'node:readline';
import { CommandError } from '../cli/exit-code.ts';
import { controlAddress } from './control-address.ts';
import type { ControlReply, ControlRequest, Print } from './control-protocol.ts';

/**
 * Has the running server do it. False when there is none: nobody listens.
 * @throws CommandError what the server says, or that it went away in the middle
 */
export async function askServer(storeDir: string, request: ControlRequest, print: Print): Promise<boolean> {
  const address = controlAddress(storeDir);
  if (!address) return false;
  const socket = connect(address.path);
  try {
    const connected = await new Promise<boolean>((resolve, reject) => {
      socket.once('connect', () => resolve(true));
      socket.once('error', (error: NodeJS.ErrnoException) => {
        if (error.code === 'ENOENT' || error.code === 'ECONNREFUSED' || error.code === 'ENOTSOCK') resolve(false);
        else reject(error);
      });
    });
    if (!connected) return false;
    socket.on('error', () => undefined);
    socket.write(`${JSON.stringify(request)}\n`);
    for await (const line of createInterface({ input: socket })) {
      const reply = JSON.parse(line) as ControlReply;
      if ('line' in reply) print(reply.line);
      else if ('done' in reply) return true;
      else throw new CommandError(reply.error.reason, reply.error.message, reply.error.hint);
    }
    throw new CommandError(
      'failure',
      'the server went away before it had answered',
      'see whether it was done, then try again',
    );
  } finally {
    socket.destroy();
    address.close();
  }
}
