/**
 * The two bridges the sidecar is measured beside: an agent's stdio on one WebSocket, nothing kept, nothing understood.
 *
 *   node byte-bridge.js plain|cork AGENT [args]
 *
 * plain: each line is sent as a frame of its own, as one would write it with `ws`.
 * cork: all frames of one read leave in one write.
 */
import { spawn } from 'node:child_process';
import type { AddressInfo, Socket } from 'node:net';
import { WebSocketServer, type WebSocket } from 'ws';

const NEWLINE = 10;
const [mode, command = '', ...args] = process.argv.slice(2);

/** Calls `line` with the span of each complete line and returns what is left. */
function splitLines(bytes: Buffer, line: (from: number, to: number) => void): Buffer {
  let from = 0;
  for (let to = bytes.indexOf(NEWLINE); to >= 0; to = bytes.indexOf(NEWLINE, from)) {
    line(from, to);
    from = to + 1;
  }
  return bytes.subarray(from);
}

type Send = (bytes: Buffer) => Buffer;

function sendPlain(client: WebSocket): Send {
  return (bytes) => splitLines(bytes, (from, to) => client.send(bytes.subarray(from, to), { binary: false }));
}

const MAX_HEADER_BYTES = 10;

/** An unmasked, final text frame's header at `at`; returns where the payload goes. */
function writeHeader(out: Buffer, at: number, length: number): number {
  out[at] = 0x81;
  if (length < 126) {
    out[at + 1] = length;
    return at + 2;
  }
  if (length < 65_536) {
    out[at + 1] = 126;
    return out.writeUInt16BE(length, at + 2);
  }
  out[at + 1] = 127;
  return out.writeBigUInt64BE(BigInt(length), at + 2);
}

function sendCorked(tcp: Socket): Send {
  return (bytes) => {
    const lines: number[] = [];
    const rest = splitLines(bytes, (from, to) => lines.push(from, to));
    const out = Buffer.allocUnsafe(bytes.length + (lines.length / 2) * MAX_HEADER_BYTES);
    let end = 0;
    for (let i = 0; i < lines.length; i += 2) {
      const from = lines[i] ?? 0;
      const to = lines[i + 1] ?? 0;
      end = writeHeader(out, end, to - from);
      end += bytes.copy(out, end, from, to);
    }
    if (end > 0) tcp.write(out.subarray(0, end));
    return rest;
  };
}

const agent = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
const server = new WebSocketServer({ host: '127.0.0.1', port: 0, path: '/acp', perMessageDeflate: false });

server.on('connection', (client, request) => {
  const tcp = request.socket;
  const send = mode === 'cork' ? sendCorked(tcp) : sendPlain(client);
  let rest: Buffer = Buffer.alloc(0);
  client.on('message', (message: Buffer) => agent.stdin.write(`${message.toString()}\n`));
  agent.stdout.on('data', (chunk: Buffer) => {
    rest = send(rest.length > 0 ? Buffer.concat([rest, chunk]) : chunk);
    if (!tcp.writableNeedDrain) return;
    agent.stdout.pause();
    tcp.once('drain', () => agent.stdout.resume());
  });
});

server.on('listening', () => {
  const { port } = server.address() as AddressInfo;
  process.stdout.write(`${JSON.stringify({ event: 'ready', endpoints: [`ws://127.0.0.1:${port}/acp`] })}\n`);
});

process.on('SIGTERM', () => {
  agent.kill();
  process.exit(0);
});
