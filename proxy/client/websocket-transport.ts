/**
 * The platform's WebSocket: browsers, and Node from 22 on. It tells nothing of pings and of a refusal's HTTP status, so a
 * refused token looks like an unreachable server.
 */
import { decodeWire, encodeWire } from '../../protocol/wire-text.ts';
import type { ClientTransport, OpenTransport } from './client-transport.ts';

export interface WebSocketTarget {
  /** `ws://host:port/acp` or `wss://...`. */
  readonly url: string;
  /** Sent as the subprotocol `acp.token.<base64url>`, because pages cannot set headers. */
  readonly token?: string | undefined;
}

/** What is used of the standard interface. */
export interface WebSocketLike {
  readonly readyState: number;
  readonly bufferedAmount: number;
  onopen: ((event: unknown) => void) | null;
  onmessage: ((event: { readonly data: unknown }) => void) | null;
  onclose: ((event: { readonly code: number; readonly reason: string }) => void) | null;
  onerror: ((event: unknown) => void) | null;
  send(text: string): void;
  close(code?: number, reason?: string): void;
}

export type WebSocketConstructor = new (url: string, protocols: string[]) => WebSocketLike;

const OPEN = 1;

export function openWebSocket(target: WebSocketTarget, make: WebSocketConstructor): OpenTransport {
  return (events) => {
    const { url, token } = target;
    const socket = new make(url, token === undefined ? ['acp'] : ['acp', `acp.token.${base64Url(token)}`]);
    socket.onopen = () => events.opened();
    socket.onmessage = ({ data }) => {
      if (typeof data === 'string') events.message(encodeWire(data));
    };
    // 'close' follows.
    socket.onerror = () => undefined;
    socket.onclose = ({ code, reason }) => {
      const why = reason === '' ? `the connection to ${url} was closed (${code})` : `${reason} (${code})`;
      events.closed({ kind: 'lost', reason: why, code });
    };
    const leave = (): void => {
      socket.onopen = null;
      socket.onmessage = null;
      socket.onclose = null;
      socket.close();
    };
    const transport: ClientTransport = {
      send: (wire) => {
        if (socket.readyState === OPEN) socket.send(decodeWire(wire));
      },
      ping: () => false,
      get bufferedBytes() {
        return socket.bufferedAmount;
      },
      pause: () => undefined,
      resume: () => undefined,
      close: leave,
      cut: leave,
    };
    return transport;
  };
}

function base64Url(text: string): string {
  return btoa(encodeWire(text)).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
}
