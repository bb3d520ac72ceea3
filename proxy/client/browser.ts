/** `acp-sidecar/client` for browsers and every platform with a standard WebSocket. It imports nothing of Node. */
import { type ResumableStream, type StreamOptions, streamOver } from './resumable-stream.ts';
import { type WebSocketConstructor, type WebSocketTarget, openWebSocket } from './websocket-transport.ts';

export type ResumableStreamOptions = StreamOptions & WebSocketTarget;

/** A stream to `ws://...` or `wss://...` that survives drops. @throws Error when the platform has no WebSocket */
export function resumableStream(options: ResumableStreamOptions): ResumableStream {
  const { WebSocket: make } = globalThis as { WebSocket?: WebSocketConstructor };
  if (!make) throw new Error('this platform has no WebSocket; Node needs version 22 or the entry for Node');
  return streamOver(openWebSocket(options, make), options);
}

export type { LinkState } from './resumable-link.ts';
export type { ResumableStream } from './resumable-stream.ts';
export * from './extension.ts';
