/**
 * A WebSocket client made for counting: text frames are handed out as spans of the bytes of one read, without a copy or
 * a string per message. No extensions, no fragments, no masking worth the name (the mask is zero).
 */
import { connect, type Socket } from 'node:net';
import { nowNs } from './script.ts';

/** All complete frames of one read; `text` is `bytes` as wire text, so an index means the same in both. */
export interface Block {
  readonly bytes: Buffer;
  readonly text: string;
  readonly readAtNs: number;
}

export interface WebSocketEvents {
  message(block: Block, from: number, to: number): void;
  closed(reason: string): void;
}

interface Frame {
  readonly opcode: number;
  readonly from: number;
  readonly to: number;
}

const TEXT = 1;
const CLOSE = 8;
const PING = 9;
const PONG = 10;
const END_OF_HEAD = '\r\n\r\n';

/** The frame that starts at `at`, when all of it stands before `end`. */
function frameAt(bytes: Buffer, at: number, end: number): Frame | undefined {
  if (end - at < 2) return undefined;
  const first = bytes[at] ?? 0;
  let length = (bytes[at + 1] ?? 0) & 0x7f;
  let from = at + 2;
  if (length >= 126) {
    from = at + (length === 126 ? 4 : 10);
    if (end < from) return undefined;
    length = length === 126 ? bytes.readUInt16BE(at + 2) : Number(bytes.readBigUInt64BE(at + 2));
  }
  if ((first & 0x80) === 0) throw new Error('the server sent a fragmented message');
  return end < from + length ? undefined : { opcode: first & 0x0f, from, to: from + length };
}

function clientFrame(opcode: number, payload: Buffer): Buffer {
  const { length } = payload;
  const size = length < 126 ? 2 : length < 65_536 ? 4 : 10;
  const out = Buffer.alloc(size + 4 + length);
  out[0] = 0x80 | opcode;
  out[1] = 0x80 | (size === 2 ? length : size === 4 ? 126 : 127);
  if (size === 4) out.writeUInt16BE(length, 2);
  if (size === 10) out.writeBigUInt64BE(BigInt(length), 2);
  payload.copy(out, size + 4);
  return out;
}

export class WebSocketClient {
  readonly #events: WebSocketEvents;
  readonly #socket: Socket;
  #bytes: Buffer = Buffer.allocUnsafe(1 << 20);
  #start = 0;
  #end = 0;
  #upgraded = false;
  #closed = false;
  #opened: () => void = () => undefined;

  /** Resolves when the server accepted the upgrade. `url` is `ws://HOST:PORT/PATH`. */
  static async open(url: string, events: WebSocketEvents): Promise<WebSocketClient> {
    const client = new WebSocketClient(new URL(url), events);
    await new Promise<void>((resolve, reject) => {
      client.#opened = resolve;
      client.#socket.once('close', () => reject(new Error(`no WebSocket at ${url}`)));
    });
    return client;
  }

  private constructor(url: URL, events: WebSocketEvents) {
    this.#events = events;
    this.#socket = connect({
      host: url.hostname,
      port: Number(url.port),
      noDelay: true,
      onread: { buffer: () => this.#room(), callback: (count) => this.#read(count) },
    });
    this.#socket.on('error', (error) => this.#close(error.message));
    this.#socket.on('close', () => this.#close('the connection ended'));
    this.#socket.write(
      `GET ${url.pathname} HTTP/1.1\r\nHost: ${url.host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
        `Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${Buffer.from('acp-sidecar-benc').toString('base64')}${END_OF_HEAD}`,
    );
  }

  send(message: string): void {
    this.#socket.write(clientFrame(TEXT, Buffer.from(message)));
  }

  close(): void {
    this.#closed = true;
    this.#socket.destroy();
  }

  #close(reason: string): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#socket.destroy();
    this.#events.closed(reason);
  }

  /** Where the next read goes: behind what is not yet a whole frame. */
  #room(): Buffer {
    const pending = this.#end - this.#start;
    if (this.#start > 0 && (pending === 0 || this.#end > this.#bytes.length / 2)) {
      this.#bytes.copyWithin(0, this.#start, this.#end);
      this.#start = 0;
      this.#end = pending;
    }
    if (this.#bytes.length - this.#end < 64 * 1024) {
      this.#bytes = Buffer.concat([this.#bytes.subarray(0, this.#end)], this.#bytes.length * 2);
    }
    return this.#bytes.subarray(this.#end);
  }

  #read(count: number): boolean {
    const readAtNs = nowNs();
    this.#end += count;
    if (this.#upgraded || this.#readHead()) this.#readFrames(readAtNs);
    return !this.#closed;
  }

  #readHead(): boolean {
    const text = this.#bytes.toString('latin1', this.#start, this.#end);
    const end = text.indexOf(END_OF_HEAD);
    if (end < 0) return false;
    this.#start += end + END_OF_HEAD.length;
    this.#upgraded = text.startsWith('HTTP/1.1 101');
    if (this.#upgraded) this.#opened();
    else this.#close(text.slice(0, text.indexOf('\r\n')));
    return this.#upgraded;
  }

  #readFrames(readAtNs: number): void {
    const bytes = this.#bytes.subarray(this.#start, this.#end);
    let block: Block | undefined;
    let at = 0;
    for (let frame = frameAt(bytes, 0, bytes.length); frame; frame = frameAt(bytes, at, bytes.length)) {
      at = frame.to;
      block ??= { bytes, text: bytes.toString('latin1'), readAtNs };
      if (frame.opcode === TEXT) this.#events.message(block, frame.from, frame.to);
      else this.#control(frame, bytes);
    }
    this.#start += at;
  }

  #control(frame: Frame, bytes: Buffer): void {
    const payload = bytes.subarray(frame.from, frame.to);
    if (frame.opcode === PING) this.#socket.write(clientFrame(PONG, payload));
    else if (frame.opcode === CLOSE) {
      const code = payload.length >= 2 ? payload.readUInt16BE(0) : 1005;
      this.#close(`the server closed with ${code} ${payload.toString('utf8', 2)}`);
    } else if (frame.opcode !== PONG) this.#close(`unexpected opcode ${frame.opcode}`);
  }
}
