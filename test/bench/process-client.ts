/** The line protocol of a process on stdio, for `AcpClient`: what an editor would start. */
import { type ChildProcess, spawn } from 'node:child_process';
import { nowNs } from './script.ts';
import type { WebSocketEvents } from './websocket-client.ts';

const NEWLINE = 10;

export class ProcessClient {
  readonly #child: ChildProcess;
  readonly exited: Promise<void>;
  #rest: Buffer = Buffer.alloc(0);

  constructor(command: readonly string[], env: NodeJS.ProcessEnv, events: WebSocketEvents) {
    const [program = '', ...args] = command;
    this.#child = spawn(program, args, { stdio: ['pipe', 'pipe', 'ignore'], env });
    this.#child.stdin?.on('error', () => undefined);
    this.#child.stdout?.on('data', (chunk: Buffer) => this.#take(chunk, events));
    this.exited = new Promise((resolve) => {
      this.#child.once('close', () => {
        events.closed('the process ended');
        resolve();
      });
    });
  }

  send(text: string): void {
    this.#child.stdin?.write(`${text}\n`);
  }

  close(): void {
    this.#child.stdin?.end();
  }

  #take(chunk: Buffer, events: WebSocketEvents): void {
    const bytes = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    const block = { bytes, text: bytes.latin1Slice(), readAtNs: nowNs() };
    let at = 0;
    for (let end = bytes.indexOf(NEWLINE); end >= 0; end = bytes.indexOf(NEWLINE, at)) {
      events.message(block, at, end);
      at = end + 1;
    }
    this.#rest = bytes.subarray(at);
  }
}
