import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LineReader } from '../../protocol/line-reader.ts';
import { encodeWire } from '../../protocol/wire-text.ts';
import { propertyRuns } from '../support/properties.ts';

interface Read {
  readonly lines: string[];
  readonly oversized: { head: string; bytes: number }[];
}

/** Reads `bytes` (wire text) in pieces cut at the given places. */
function read(bytes: string, cuts: readonly number[], maxLineBytes = 1000): Read {
  const got: Read = { lines: [], oversized: [] };
  const reader = new LineReader(maxLineBytes, {
    line: (wire) => void got.lines.push(wire),
    oversized: (head, size) => void got.oversized.push({ head, bytes: size }),
  });
  const places = [...new Set(cuts.map((cut) => cut % (bytes.length + 1)))].toSorted((a, b) => a - b);
  let at = 0;
  for (const place of [...places, bytes.length]) {
    reader.push(bytes.slice(at, place));
    at = place;
  }
  reader.end();
  expect(reader.pendingBytes).toBe(0);
  return got;
}

const cuts = fc.array(fc.nat(), { maxLength: 12 });
// Code units that a careless reader takes for a line end, or for space.
const words = fc.string({
  unit: fc.constantFrom('a', 'é', '日', '\u{1F600}', '\u2028', '\u2029', '\u0085', '\v', '{', '"'),
});

describe('lines', () => {
  it('[LN1] end at LF or CRLF only, however the bytes are split', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(words, fc.constantFrom('\n', '\r\n'))), cuts, (list, at) => {
        const bytes = encodeWire(list.map(([line, end]) => `x${line}${end}`).join(''));
        expect(read(bytes, at, 100_000).lines).toEqual(list.map(([line]) => encodeWire(`x${line}`)));
      }),
      propertyRuns(500),
    );
  });

  it('[LN2] a byte order mark at the start and blank lines are dropped, an unfinished last line counts', () => {
    fc.assert(
      fc.property(cuts, (at) => {
        const bytes = '\xef\xbb\xbf\n\r\n{"a":1}\n \t \n\n\xef\xbb\xbfkept\n{"b":2}';
        expect(read(bytes, at).lines).toEqual(['{"a":1}', '\xef\xbb\xbfkept', '{"b":2}']);
        expect(read('\xef\xbb\xbf{}', at).lines).toEqual(['{}']);
      }),
    );
    expect(read('', []).lines).toEqual([]);
  });

  it('[LN3] a line over the limit is dropped alone, with its head and its size told', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 30 })), cuts, (sizes, at) => {
        const lines = sizes.map((size, i) => String.fromCharCode(97 + (i % 26)).repeat(size));
        const got = read(lines.map((line) => `${line}\n`).join(''), at, 20);
        expect(got.lines).toEqual(lines.filter((line) => line.length <= 20));
        const long = lines.filter((line) => line.length > 20);
        expect(got.oversized.map(({ bytes }) => bytes)).toEqual(long.map((line) => line.length));
        // However it was cut: at least what fits under the limit, of the right line.
        for (const [i, { head }] of got.oversized.entries()) {
          expect(long[i]?.startsWith(head)).toBe(true);
          expect(head.length).toBeGreaterThan(20);
        }
      }),
    );
  });

  it('[LN3] holds no more of it than its head', () => {
    let head = '';
    const lines: string[] = [];
    const reader = new LineReader(10_000, {
      line: (wire) => void lines.push(wire),
      oversized: (text) => void (head = text),
    });
    reader.push('{"method":"x",');
    for (let i = 0; i < 1000; i++) reader.push('y'.repeat(5000));
    expect(reader.pendingBytes).toBe(5_000_014);
    reader.push('\nnext\n');
    expect(head).toHaveLength(4096);
    expect(head.startsWith('{"method":"x",yyy')).toBe(true);
    expect(lines).toEqual(['next']);
  });

  it('[LN1] that the fast path takes are not cut out, and the others are', () => {
    const taken: string[] = [];
    const lines: string[] = [];
    const reader = new LineReader(100, {
      match(text, at) {
        if (!text.startsWith('fast', at)) return -1;
        const end = text.indexOf('\n', at);
        if (end < 0) return -1;
        taken.push(text.slice(at, end));
        return end + 1;
      },
      line: (wire) => void lines.push(wire),
      oversized: () => undefined,
    });
    reader.push('fast1\nslow\nfast2\nfa');
    reader.push('st3\nfast4\n');
    expect(taken).toEqual(['fast1', 'fast2', 'fast4']);
    expect(lines).toEqual(['slow', 'fast3']);
  });
});
