/**
 * `--trace`: what goes over each connection, both ways, into a file for a bug report. Without `--trace` none of this is
 * loaded, and the data path has one test for `undefined` a read or write.
 *
 *   agent stdout chunk -> lines ─┐
 *   agent stdin text   -> line ──┤
 *   client message ──────────────┼─> redaction of that peer -> TraceFile
 *   client outbox page -> frames ┘
 */
import '../../storage/latin1.ts';
import { LineReader } from '../../protocol/line-reader.ts';
import { parseWire, stringifyWire } from '../../protocol/wire-text.ts';
import type { Logger } from '../log.ts';
import type { Framing } from '../transport/outbox.ts';
import { VERSION } from '../version.ts';
import { framesOf } from './frames.ts';
import { TraceFile } from './trace-file.ts';
import { type Peer, type TraceHeader, TRACE_VERSION, type TracedEvent, type TracedMessage } from './trace-record.ts';
import { TraceRedaction } from './trace-redaction.ts';

export interface TraceOptions {
  readonly path: string;
  readonly redact: readonly RegExp[];
  readonly maxMessageBytes: number;
  readonly logger: Logger;
  readonly now: () => number;
  /** Of one file; 64 MiB when not given. */
  readonly maxFileBytes?: number;
}

/** One agent process or one connection. */
export interface TracedPeer {
  /** A message, or for an agent any piece of its stdout. */
  received(bytes: Buffer | string): void;
  /** What goes to the peer: a message, or a page of whole frames. */
  sent(bytes: Buffer | string): void;
  ended(): void;
}

const HEAD = 200;

export class Trace {
  readonly #options: TraceOptions;
  readonly #file: TraceFile;
  #lives = 0;

  /** @throws Error when the file cannot be made */
  constructor(options: TraceOptions) {
    this.#options = options;
    const { path, logger, maxFileBytes } = options;
    this.#file = new TraceFile({
      path,
      ...(maxFileBytes !== undefined && { maxBytes: maxFileBytes }),
      header: (part) => {
        const header: TraceHeader = {
          trace: TRACE_VERSION,
          version: VERSION,
          time: options.now(),
          pid: process.pid,
          part,
        };
        return stringifyWire(header);
      },
      failed: (message) => logger.error({ err: message, path }, 'the trace cannot be written; it ends here'),
    });
  }

  /** A process of the agent has started. */
  agent(): TracedPeer {
    const id = ++this.#lives;
    const redaction = new TraceRedaction(this.#options.redact);
    const reader = new LineReader(this.#options.maxMessageBytes, {
      line: (wire) => this.#message('agent', id, 'in', wire, redaction),
      oversized: (head, bytes) => this.#oversized('agent', id, head, bytes, redaction),
    });
    this.#event('agent', id, 'started');
    return {
      received: (bytes) => reader.push(typeof bytes === 'string' ? bytes : bytes.latin1Slice()),
      sent: (text) => this.#message('agent', id, 'out', String(text).trimEnd(), redaction),
      ended: () => {
        reader.end();
        this.#event('agent', id, 'exited');
      },
    };
  }

  client(id: number, framing: Framing): TracedPeer {
    const redaction = new TraceRedaction(this.#options.redact);
    this.#event('client', id, 'opened');
    return {
      received: (wire) => this.#message('client', id, 'in', String(wire), redaction),
      sent: (page) => {
        for (const wire of framesOf(page as Buffer, framing)) this.#message('client', id, 'out', wire, redaction);
      },
      ended: () => this.#event('client', id, 'closed'),
    };
  }

  close(): void {
    this.#file.close();
  }

  #message(peer: Peer, id: number, direction: 'in' | 'out', wire: string, redaction: TraceRedaction): void {
    const facts: TracedMessage = { time: this.#options.now(), peer, id, to: direction === 'in' ? 'sidecar' : peer };
    const head = stringifyWire(facts).slice(0, -1);
    if (!isJsonObject(wire)) this.#file.line(`${head},"raw":${this.#raw(wire, redaction)}}`);
    else this.#file.line(`${head},"message":${redaction.message(wire.replace(/[\r\n]+/g, ' '), direction)}}`);
  }

  #oversized(peer: Peer, id: number, head: string, bytes: number, redaction: TraceRedaction): void {
    const facts: TracedMessage = { time: this.#options.now(), peer, id, to: 'sidecar' };
    const raw = this.#raw(head.slice(0, HEAD), redaction);
    this.#file.line(`${stringifyWire(facts).slice(0, -1)},"bytes":${bytes},"raw":${raw}}`);
  }

  #raw(wire: string, redaction: TraceRedaction): string {
    return stringifyWire(redaction.text(Buffer.from(wire, 'latin1').toString('utf8')));
  }

  #event(peer: Peer, id: number, event: TracedEvent['event']): void {
    this.#file.line(stringifyWire({ time: this.#options.now(), peer, id, event } satisfies TracedEvent));
  }
}

function isJsonObject(wire: string): boolean {
  if (!wire.trimStart().startsWith('{')) return false;
  try {
    parseWire(wire);
    return true;
  } catch {
    return false;
  }
}
