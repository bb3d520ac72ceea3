/**
 * A run: the one text message that is streaming now. Its buffer is the record it will become, so settling costs no
 * copy: header and fields, the update up to its text, the text as the agent escaped it, and when it is sealed the rest.
 */
import '../../storage/latin1.ts';
import { allocateRecord, HEADER_BYTES, sealRecord, writeHead } from '../../storage/event-codec.ts';

/** What the chunks of a run have in common. All strings are wire text. */
export interface TextShape {
  readonly kind: number;
  /** Equal keys may be joined. */
  readonly key: string;
  /** The `update` object before and behind its text. */
  readonly prefix: string;
  readonly suffix: string;
  readonly meta?: string | undefined;
  readonly childSessionId?: string | undefined;
  readonly paramsRest?: string | undefined;
  readonly envelopeRest?: string | undefined;
}

/** True when the chunks stand in more of an envelope than sessionId and update. */
export function hasEnvelopeFields(shape: TextShape): boolean {
  return (shape.meta ?? shape.childSessionId ?? shape.paramsRest ?? shape.envelopeRest) !== undefined;
}

/** A run is cut after it has passed this length or this age, and only between chunks. */
export const RUN_BYTES = 64 * 1024;
export const RUN_MS = 5000;

const FIRST_BYTES = 2048;
const TRAILER_ROOM = 4;

/**
 * Buffers of full runs, used again: a stream at full speed would else allocate megabytes outside the heap and make the
 * garbage collector run for them.
 */
const POOLED_BYTES = RUN_BYTES + 16 * 1024;
const MAX_POOLED = 8;
const pool: Buffer[] = [];

/** Gives back the buffer of a record that nobody reads any more. */
export function releaseRecord(record: Buffer): void {
  if (record.buffer.byteLength !== POOLED_BYTES || pool.length >= MAX_POOLED) return;
  pool.push(Buffer.from(record.buffer, 0, POOLED_BYTES));
}

export class Run {
  readonly shape: TextShape;
  readonly bornAt: number;
  readonly turnId: string | undefined;
  /** Where the text starts in `bytes`. */
  readonly textStart: number;
  #bytes: Buffer;
  #end: number;
  #sealed: Buffer | undefined;

  constructor(shape: TextShape, boot: string, now: number, turnId: string | undefined) {
    this.shape = shape;
    this.bornAt = now;
    this.turnId = turnId;
    const { meta, childSessionId, paramsRest, envelopeRest } = shape;
    const event = { type: 'update' as const, time: now, turnId, meta, childSessionId, paramsRest, envelopeRest };
    let size = HEADER_BYTES + shape.prefix.length + FIRST_BYTES;
    for (const field of [turnId, meta, childSessionId, paramsRest, envelopeRest]) size += field ? field.length + 5 : 0;
    this.#bytes = allocateRecord(size);
    const payloadAt = writeHead(this.#bytes, event, { boot, kind: shape.kind });
    this.textStart = payloadAt + this.#bytes.latin1Write(shape.prefix, payloadAt);
    this.#end = this.textStart;
  }

  /** Bytes of text so far. */
  get length(): number {
    return this.#end - this.textStart;
  }

  /** The buffer; the text stands at `textStart`. */
  get bytes(): Buffer {
    return this.#bytes;
  }

  append(body: string): void {
    const end = this.#end + body.length;
    if (end + this.shape.suffix.length + TRAILER_ROOM > this.#bytes.length) this.#grow(end);
    this.#bytes.latin1Write(body, this.#end);
    this.#end = end;
  }

  /** Ends the run and returns its record. The buffer does not change after this. */
  seal(): Buffer {
    if (!this.#sealed) {
      const span = { start: this.textStart, end: this.#end };
      const payloadEnd = this.#end + this.#bytes.latin1Write(this.shape.suffix, this.#end);
      this.#sealed = this.#bytes.subarray(0, sealRecord(this.#bytes, payloadEnd, span));
    }
    return this.#sealed;
  }

  /** Takes the end back: its record was not written. */
  reopen(): void {
    this.#sealed = undefined;
  }

  /** The text so far, wire text. */
  get text(): string {
    return this.#bytes.latin1Slice(this.textStart, this.#end);
  }

  #grow(end: number): void {
    const need = end + this.shape.suffix.length + TRAILER_ROOM;
    const larger =
      need <= POOLED_BYTES
        ? (pool.pop() ?? Buffer.allocUnsafeSlow(POOLED_BYTES))
        : Buffer.allocUnsafeSlow(Math.max(need, this.#bytes.length * 2));
    this.#bytes.copy(larger, 0, 0, this.#end);
    if (this.#bytes.length === POOLED_BYTES) releaseRecord(this.#bytes);
    this.#bytes = larger;
  }
}
