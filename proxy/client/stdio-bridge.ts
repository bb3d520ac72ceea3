/**
 * stdio on one side, a resumable connection on the other: what an editor starts instead of an agent. Nothing but ACP is
 * written to stdout; what happens to the connection is told on stderr.
 */
import '../../storage/latin1.ts';
import { isUtf8 } from 'node:buffer';
import { rpcError } from '../../protocol/error.ts';
import { errorText } from '../../protocol/json-rpc.ts';
import { LineReader } from '../../protocol/line-reader.ts';
import { stringifyWire } from '../../protocol/wire-text.ts';
import type { OpenTransport } from './client-transport.ts';
import { LinkDriver } from './link-driver.ts';
import type { PhaseTimes } from './link-phase.ts';
import type { LinkState } from './resumable-link.ts';

export interface BridgeOptions {
  readonly openTransport: OpenTransport;
  /** For the lines on stderr, like `ws://host/acp`. */
  readonly where: string;
  readonly name?: string | undefined;
  readonly times: Partial<PhaseTimes>;
}

const MAX_LINE_BYTES = 256 * 1024 * 1024;
/** What the editor asked right before it left may still be answered for so long. */
const LAST_WORDS_MS = 1000;
/** A connection that cannot be had: requests get their error for so long, then the process ends. */
const AFTER_END_MS = 2000;

/** Runs until stdin ends, a signal comes, or the connection is refused. Resolves to the exit code. */
export function bridgeStdio(options: BridgeOptions): Promise<number> {
  return new Promise((resolve) => new StdioBridge(options, resolve).start());
}

class StdioBridge {
  readonly #options: BridgeOptions;
  readonly #driver: LinkDriver;
  readonly #finish: (code: number) => void;
  #out = '';
  #down = false;
  #code = 0;

  constructor(options: BridgeOptions, finish: (code: number) => void) {
    this.#options = options;
    this.#finish = finish;
    this.#driver = new LinkDriver({
      openTransport: options.openTransport,
      onMessage: (wire) => this.#print(wire),
      onState: (state) => this.#tell(state),
      name: options.name,
      times: options.times,
    });
  }

  start(): void {
    const { stdin, stdout } = process;
    const reader = new LineReader(MAX_LINE_BYTES, {
      line: (wire) => this.#line(wire),
      oversized: () => this.#print(errorText('null', stringifyWire(rpcError('message_too_large')))),
    });
    stdin.on('data', (chunk: Buffer) => {
      reader.push(chunk.latin1Slice());
      if (!this.#driver.congested) return;
      stdin.pause();
      void this.#driver.drained().then(() => stdin.resume());
    });
    stdin.once('end', () => {
      reader.end();
      void this.#lastWords();
    });
    stdin.once('error', () => this.#leave());
    stdout.on('error', () => this.#leave());
    stdout.on('drain', () => this.#driver.resume());
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.once(signal, () => this.#leave());
    this.#driver.start();
  }

  #line(wire: string): void {
    if (isUtf8(Buffer.from(wire, 'latin1'))) this.#driver.send(wire);
    else this.#print(errorText('null', stringifyWire(rpcError('parse_error', 'the line is not valid UTF-8'))));
  }

  /** All that comes in one tick leaves in one write. */
  #print(wire: string): void {
    if (this.#out === '') process.nextTick(this.#flush);
    this.#out += `${wire}\n`;
  }

  readonly #flush = (): void => {
    const out = this.#out;
    this.#out = '';
    if (out !== '') process.stdout.write(out, 'latin1');
    if (process.stdout.writableNeedDrain) this.#driver.pause();
  };

  #tell(state: LinkState): void {
    const { where } = this.#options;
    if (state.phase === 'live' && this.#down) {
      this.#down = false;
      this.#log('connected again');
    } else if (state.phase === 'waiting' && !this.#down) {
      this.#down = true;
      this.#log(`no connection to ${where}: ${state.reason ?? ''}; trying again`);
    } else if (state.phase === 'ended' && state.reason !== 'closed') {
      this.#code = 1;
      this.#log(`no connection to ${where}: ${state.reason ?? ''}`);
      setTimeout(() => this.#leave(), AFTER_END_MS);
    }
  }

  #log(text: string): void {
    process.stderr.write(`acp-sidecar: ${text}\n`);
  }

  async #lastWords(): Promise<void> {
    const until = Date.now() + LAST_WORDS_MS;
    while (this.#driver.link.unanswered > 0 && Date.now() < until && this.#code === 0) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    this.#leave();
  }

  #leave(): void {
    this.#flush();
    this.#driver.end();
    // The socket's last bytes and stdout's.
    setTimeout(() => this.#finish(this.#code), 20);
  }
}
