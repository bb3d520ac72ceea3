import { spawn } from 'node:child_process';
import { connect } from 'node:net';
import { WebSocket } from 'ws';
import { lineSplitter } from './line-splitter.ts';

/** How a connection ended. `code` is the WebSocket close code, absent on a Unix socket. */
export interface Closed {
  readonly code?: number;
  readonly reason?: string;
}

export interface RawTransport {
  /** One message: a frame on a WebSocket, a line (its end is added) on a Unix socket. */
  send(text: string): void;
  /** Bytes as they are, for what is not a message: half a line, a binary frame. */
  sendBytes(bytes: Buffer): void;
  /** Ends as a client that goes away properly. */
  close(): void;
  /** Ends as a cable that is pulled. */
  cut(): void;
  pause(): void;
  resume(): void;
}

export interface TransportEvents {
  readonly onText: (text: string) => void;
  readonly onClose: (closed: Closed) => void;
}

export async function openUnix(path: string, events: TransportEvents): Promise<RawTransport> {
  const socket = connect(path);
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve);
    socket.once('error', reject);
  });
  socket.on('error', () => undefined);
  socket.on('data', lineSplitter(events.onText));
  socket.on('close', () => events.onClose({}));
  return {
    send: (text) => void socket.write(`${text}\n`),
    sendBytes: (bytes) => void socket.write(bytes),
    close: () => void socket.end(),
    cut: () => void socket.destroy(),
    pause: () => void socket.pause(),
    resume: () => void socket.resume(),
  };
}

export interface WebSocketOptions {
  readonly protocols?: readonly string[];
  readonly headers?: Readonly<Record<string, string>>;
}

export async function openWebSocket(
  url: string,
  events: TransportEvents,
  { protocols = [], headers = {} }: WebSocketOptions = {},
): Promise<RawTransport> {
  const socket = new WebSocket(url, [...protocols], { headers, perMessageDeflate: false, maxPayload: 256 << 20 });
  socket.on('message', (data: Buffer) => events.onText(data.toString('utf8')));
  socket.on('close', (code, reason) => events.onClose({ code, reason: reason.toString() }));
  await new Promise<void>((resolve, reject) => {
    socket.once('open', resolve);
    socket.once('error', reject);
  });
  socket.on('error', () => undefined);
  return {
    send: (text) => socket.send(text),
    sendBytes: (bytes) => socket.send(bytes),
    close: () => socket.close(),
    cut: () => socket.terminate(),
    pause: () => socket.pause(),
    resume: () => socket.resume(),
  };
}

/** A process that speaks on stdio, an agent without a sidecar. Its stderr goes nowhere. */
export function openProcess(command: readonly string[], events: TransportEvents): RawTransport {
  const [program = '', ...args] = command;
  const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'ignore'] });
  child.stdin.on('error', () => undefined);
  child.stdout.on('data', lineSplitter(events.onText));
  child.on('close', () => events.onClose({}));
  return {
    send: (text) => void child.stdin.write(`${text}\n`),
    sendBytes: (bytes) => void child.stdin.write(bytes),
    close: () => void child.stdin.end(),
    cut: () => void child.kill('SIGKILL'),
    pause: () => void child.stdout.pause(),
    resume: () => void child.stdout.resume(),
  };
}
