/**
 * A connection to a sidecar in the shape that the ACP SDK takes (`Stream`), which survives drops: it reconnects, resumes
 * every session where it was cut, and sends again what was not answered.
 *
 *   const stream = resumableStream({ url: 'wss://host/acp', token });
 *   client({ name: 'mine' }).onNotification(...).connect(stream);
 */
import type { AnyMessage, Stream } from '@agentclientprotocol/sdk';
import { decodeWire, encodeWire } from '../../protocol/wire-text.ts';
import type { OpenTransport } from './client-transport.ts';
import { LinkDriver } from './link-driver.ts';
import type { PhaseTimes } from './link-phase.ts';
import type { LinkState } from './resumable-link.ts';

export interface StreamOptions {
  /** Told of every change: `live`, `waiting` with the reason, `ended`, ... */
  readonly onState?: ((state: LinkState) => void) | undefined;
  /** The same client after a restart of the program; a new random one by default. 1 to 128 printable ASCII characters. */
  readonly clientId?: string | undefined;
  /** Shown to the other clients of a session. */
  readonly name?: string | undefined;
  /** A peer is pinged after so long in silence, and given up after twice the time. Milliseconds, default 15000. */
  readonly heartbeatMs?: number | undefined;
  /** Before the connection was live for the first time: when to give up. Milliseconds, default 30000. */
  readonly giveUpMs?: number | undefined;
  /** Waits between attempts grow from the first to the longest. Milliseconds, default 100 and 10000. */
  readonly firstBackoffMs?: number | undefined;
  readonly longestBackoffMs?: number | undefined;
}

export interface ResumableStream extends Stream {
  /** Ends the connection; the sessions go on. */
  close(): void;
}

const FIRST_GIVE_UP_MS = 30_000;
/** Messages that wait for a reader before the transport is not read any more. */
const READ_AHEAD = 256;

export function streamOver(openTransport: OpenTransport, options: StreamOptions): ResumableStream {
  let controller: ReadableStreamDefaultController<AnyMessage> | undefined;
  let open = true;
  const driver = new LinkDriver({
    openTransport,
    onMessage: (wire) => {
      if (!open || !controller) return;
      controller.enqueue(JSON.parse(decodeWire(wire)) as AnyMessage);
      if ((controller.desiredSize ?? 0) <= 0) driver.pause();
    },
    onState: options.onState,
    clientId: options.clientId,
    name: options.name,
    times: timesOf(options),
  });
  const close = (): void => {
    if (!open) return;
    open = false;
    driver.end();
    controller?.close();
  };
  const readable = new ReadableStream<AnyMessage>(
    {
      start: (given) => {
        controller = given;
      },
      pull: () => driver.resume(),
      cancel: () => {
        open = false;
        driver.end();
      },
    },
    { highWaterMark: READ_AHEAD },
  );
  const writable = new WritableStream<AnyMessage>({
    write: (message) => {
      driver.send(encodeWire(JSON.stringify(message)));
      return driver.drained();
    },
    close,
    abort: close,
  });
  driver.start();
  return { readable, writable, close };
}

/** The times of a connection: what was given, else the defaults. */
export function timesOf(options: StreamOptions): Partial<PhaseTimes> {
  const { heartbeatMs, firstBackoffMs, longestBackoffMs, giveUpMs = FIRST_GIVE_UP_MS } = options;
  return {
    giveUpMs,
    ...(heartbeatMs === undefined ? {} : { heartbeatMs }),
    ...(firstBackoffMs === undefined ? {} : { firstBackoffMs }),
    ...(longestBackoffMs === undefined ? {} : { longestBackoffMs }),
  };
}
