import { crc32 } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { EVENT_TYPES, type EventFields, type EventType } from '../../protocol/event.ts';
import { encodeWire } from '../../protocol/wire-text.ts';
import {
  bootOf,
  decodeRecord,
  encodeRecord,
  HEADER_BYTES,
  hasEnvelope,
  payloadEnd,
  payloadStart,
  RECORD_VERSION,
  recordLength,
  sealRecord,
  textSpan,
  typeCode,
  updateKind,
  writeHead,
} from '../../storage/event-codec.ts';

/** A valid record with bytes changed and the checksum made right again. */
function changed(record: Buffer, change: (bytes: Buffer) => void): Buffer {
  const copy = Buffer.from(record);
  change(copy);
  copy.writeUInt32BE(crc32(copy.subarray(0, copy.length - 4)), copy.length - 4);
  return copy;
}

const wire = fc.string({ unit: 'grapheme', maxLength: 40 }).map(encodeWire);
const time = fc.integer({ min: 0, max: 2 ** 48 - 1 });
const type = fc.constantFrom(...(Object.keys(EVENT_TYPES) as EventType[]));
const boot = fc.stringMatching(/^[a-z0-9]{6}$/);
const fields: fc.Arbitrary<EventFields> = fc
  .record(
    {
      type,
      time,
      payload: wire,
      required: fc.boolean(),
      synthetic: fc.boolean(),
      turnId: wire,
      toolCallId: wire,
      meta: wire,
      childSessionId: wire,
      paramsRest: wire,
      envelopeRest: wire,
    },
    { requiredKeys: ['type', 'time', 'payload', 'required', 'synthetic'] },
  )
  .map((event) => event as EventFields);

const sample = encodeRecord(
  { type: 'update', time: 1_700_000_000_000, payload: '{"text":"hello"}', turnId: 't1', required: true },
  { boot: 'abc123', kind: 3, text: { start: 9, end: 14 } },
);

describe('record codec', () => {
  it('gives back every member of an event exactly, also from a buffer that is longer', () => {
    fc.assert(
      fc.property(fields, boot, fc.nat({ max: 255 }), (event, bootId, kind) => {
        const record = encodeRecord(event, { boot: bootId, kind });
        const expected = { ...event, seq: 9, boot: bootId, kind };
        expect(decodeRecord(record, record.length, 9)).toEqual(expected);
        const longer = Buffer.concat([record, Buffer.alloc(50, 0xaa)]);
        expect(decodeRecord(longer, record.length, 9)).toEqual(expected);
        expect(recordLength(longer)).toBe(record.length);
      }),
    );
  });

  it('finds the parts of a record without decoding it', () => {
    expect(sample.latin1Slice(payloadStart(sample), payloadEnd(sample))).toBe('{"text":"hello"}');
    const span = textSpan(sample);
    expect(span && sample.latin1Slice(span.start, span.end)).toBe('hello');
    expect([typeCode(sample), updateKind(sample), bootOf(sample)]).toEqual([6, 3, 'abc123']);
    const plain = encodeRecord({ type: 'update', time: 0, payload: '' }, { boot: 'b' });
    expect([textSpan(plain), bootOf(plain)]).toEqual([undefined, 'b']);
    expect(decodeRecord(sample, sample.length, 1)).toMatchObject({ text: { start: 9, end: 14 } });
  });

  it('tells whether the envelope holds more than the session id', () => {
    const plain = { type: 'update', time: 0, payload: '{}', turnId: 't', toolCallId: 'c' } as const;
    expect(hasEnvelope(encodeRecord(plain, { boot: 'b' }))).toBe(false);
    for (const name of ['meta', 'childSessionId', 'paramsRest', 'envelopeRest']) {
      expect(hasEnvelope(encodeRecord({ ...plain, [name]: '' }, { boot: 'b' }))).toBe(true);
    }
  });

  it('can be written piece by piece into a buffer that grows', () => {
    const into = Buffer.alloc(400, 0xee);
    const event = { type: 'update', time: 5, turnId: 't' } as const;
    const start = writeHead(into, event, { boot: 'abc123', kind: 2 });
    const end = start + into.latin1Write('{"text":"ab"}', start);
    const length = sealRecord(into, end, { start: start + 9, end: start + 11 });
    const whole = encodeRecord(
      { ...event, payload: '{"text":"ab"}' },
      { boot: 'abc123', kind: 2, text: { start: 9, end: 11 } },
    );
    expect(into.subarray(0, length).equals(whole)).toBe(true);
  });

  it('notices any changed byte and any other length', () => {
    for (let i = 0; i < sample.length; i++) {
      for (const bit of [1, 128]) {
        const broken = Buffer.from(sample);
        broken[i] = (broken[i] as number) ^ bit;
        const decoded = decodeRecord(broken, broken.length, 4);
        // The version is looked at first: what is newer cannot be checked by us.
        expect([i, 'unreadable' in decoded && decoded.unreadable]).toEqual([
          i,
          i === 0 && (broken[0] as number) > 1 ? 'newer' : 'damaged',
        ]);
      }
    }
    for (let length = 0; length < sample.length; length++) {
      expect(decodeRecord(sample.subarray(0, length), length, 4)).toMatchObject({ unreadable: 'damaged', seq: 4 });
    }
  });

  it('notices fields that do not add up, although the checksum is right', () => {
    const broken = changed(sample, (bytes) => bytes.writeUInt32BE(4_000_000_000, HEADER_BYTES + 1));
    expect(decodeRecord(broken, broken.length, 4)).toMatchObject({ unreadable: 'damaged' });
  });

  it('never throws, whatever the bytes are', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 120 }), fc.boolean(), (bytes, versioned) => {
        const record = Buffer.from(bytes);
        if (versioned && record.length > 0) record[0] = RECORD_VERSION;
        expect(() => decodeRecord(record, record.length, 1)).not.toThrow();
      }),
    );
  });

  it('refuses a newer record version and says which', () => {
    const newer = changed(sample, (bytes) => (bytes[0] = RECORD_VERSION + 1));
    expect(decodeRecord(newer, newer.length, 8)).toMatchObject({ unreadable: 'newer', seq: 8 });
  });

  it('refuses an unknown event type that is required, and passes one that is not', () => {
    const required = changed(sample, (bytes) => (bytes[1] = 200));
    expect(decodeRecord(required, required.length, 8)).toMatchObject({ unreadable: 'unknown_required', seq: 8 });
    const optional = changed(required, (bytes) => (bytes[2] = (bytes[2] as number) & ~1));
    expect(decodeRecord(optional, optional.length, 8)).toMatchObject({
      type: 'unknown_200',
      payload: '{"text":"hello"}',
    });
  });

  it('steps over fields that it does not know', () => {
    const unknown = changed(sample, (bytes) => (bytes[HEADER_BYTES] = 99));
    const decoded = decodeRecord(unknown, unknown.length, 8);
    expect(decoded).toMatchObject({ type: 'update', payload: '{"text":"hello"}' });
    expect(decoded).not.toHaveProperty('turnId');
  });

  it('has the layout of version 1: this test changes only together with the version', () => {
    expect(RECORD_VERSION).toBe(1);
    expect(sample.toString('hex')).toBe(
      [
        '01060503018bcfe56800', // version, type, flags, kind, time
        '00000007000000300000003500000010', // lengths and the text span
        '616263313233', // boot
        '01000000027431', // turnId
        '7b2274657874223a2268656c6c6f227d', // payload
        'f43e8dfa', // checksum
      ].join(''),
    );
  });
});
