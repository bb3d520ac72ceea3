import { decodeWireWith } from '../protocol/wire-text.ts';

/** Node's fast paths between buffers and wire text (one character a byte); they are public but not in its type package. */
declare global {
  interface Buffer {
    latin1Slice(start?: number, end?: number): string;
    latin1Write(text: string, offset?: number, length?: number): number;
  }
}

decodeWireWith((wire) => Buffer.from(wire, 'latin1').toString('utf8'));
