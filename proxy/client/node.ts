/** `acp-sidecar/client` for Node: WebSocket by `ws`, and Unix sockets. */
import type { OpenTransport } from './client-transport.ts';
import { type ResumableStream, type StreamOptions, streamOver } from './resumable-stream.ts';
import { openUnixTransport } from './unix-transport.ts';
import type { WebSocketTarget } from './websocket-transport.ts';
import { openWsTransport } from './ws-transport.ts';

export type ResumableStreamOptions = StreamOptions & WebSocketTarget;

/** A stream to `ws://...`, `wss://...` or `unix:/path` that survives drops. */
export function resumableStream(options: ResumableStreamOptions): ResumableStream {
  return streamOver(openTarget(options), options);
}

export function openTarget(target: WebSocketTarget): OpenTransport {
  return target.url.startsWith('unix:') ? openUnixTransport(target.url.slice(5)) : openWsTransport(target);
}

export type { LinkState } from './resumable-link.ts';
export type { ResumableStream } from './resumable-stream.ts';
export * from './extension.ts';
