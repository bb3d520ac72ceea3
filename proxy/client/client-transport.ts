/** A connection to a sidecar, whatever carries it. Messages are wire text: one JSON-RPC message, one character a byte. */
import type { ErrorKind } from '../../protocol/error.ts';

export interface ClientTransport {
  send(wire: string): void;
  /** Asks for a sign of life below the messages; `alive` follows. False when the transport cannot ask. */
  ping(): boolean;
  /** Bytes that are not with the operating system yet. */
  readonly bufferedBytes: number;
  /** Stops reading; does nothing where the platform cannot. */
  pause(): void;
  resume(): void;
  /** Ends in good order. */
  close(): void;
  /** Ends at once. `closed` may or may not follow. */
  cut(): void;
}

/** How a connection ended. `refused` is final: trying again would not help. */
export interface TransportEnd {
  readonly kind: 'lost' | 'refused';
  /** A sentence without its full stop. */
  readonly reason: string;
  /** What the local side's requests are answered with, when it is not that the sidecar refuses. */
  readonly error?: ErrorKind | undefined;
  /** A WebSocket close code. */
  readonly code?: number | undefined;
}

export interface TransportEvents {
  opened(): void;
  message(wire: string): void;
  /** Bytes came that are no message: a ping, a pong, a part of a message. */
  alive(): void;
  closed(end: TransportEnd): void;
}

/** Begins to connect. */
export type OpenTransport = (events: TransportEvents) => ClientTransport;
