import fc from 'fast-check';
import { beforeEach, describe, expect, it } from 'vitest';
import type { Position } from '../../protocol/event-id.ts';
import { encodeWire } from '../../protocol/wire-text.ts';
import { type CursorReason, isTextBoundary, resolveCursor } from '../../storage/cursor.ts';
import { encodeRecord } from '../../storage/event-codec.ts';
import { MemoryEventLog } from '../../storage/memory-event-log.ts';
import { sessionRow } from '../support/session-row.ts';

const BOOT = 'boot02';
const OLD_BOOT = 'boot01';
const log = new MemoryEventLog();
const row = sessionRow(1, { low: 2 });

function text(body: string, boot: string): Buffer {
  const head = '{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"';
  const wire = encodeWire(body);
  return encodeRecord(
    { type: 'update', time: 1, payload: `${head}${wire}"}}` },
    { boot, kind: 2, text: { start: head.length, end: head.length + wire.length } },
  );
}

function event(type: 'turn_started' | 'turn_ended' | 'update', payload: string): Buffer {
  return encodeRecord({ type, time: 1, payload }, { boot: BOOT });
}

// 1 pruned, 2 prompt of three blocks, 3 text of this boot, 4 text of an earlier one, 5 something else
const RECORDS = [
  event('update', '{}'),
  event('turn_started', '{"prompt":[{"type":"text","text":"a,]"},{"x":[1,2]}, {}],"by":"c"}'),
  text('ab\\néÿ', BOOT),
  text('hello', OLD_BOOT),
  event('turn_ended', '{"prompt":[1,2,3]}'),
];
const openRun = { seq: 6, length: 10 };

beforeEach(async () => {
  if (log.lastSeq(1) > 0) return;
  await log.commit({ appends: [{ num: 1, firstSeq: 1, records: RECORDS }], rows: [row] });
});

type Case = [cursor: unknown, expected: CursorReason | Position, run?: typeof openRun];
const at = (seq: number, offset = 0): Position => ({ seq, offset });

const TABLE: Record<string, Case[]> = {
  '[CU4] no cursor': [
    [undefined, 'no_cursor'],
    [null, 'no_cursor'],
  ],
  '[CU4] no event id': [
    ['', 'malformed'],
    [7, 'malformed'],
    [{ seq: 1 }, 'malformed'],
    ['log1', 'malformed'],
    ['log1-', 'malformed'],
    ['log1--1', 'malformed'],
    ['log1-01', 'malformed'],
    ['log1-1e3', 'malformed'],
    ['log1-3~boot02', 'malformed'],
    ['log1-3~boot02-0', 'malformed'],
    ['log1-2.0', 'malformed'],
    ['log1-9999999999999999', 'malformed'],
    ['../../log1-3', 'malformed'],
  ],
  '[CU4] another log': [
    ['log2-3', 'foreign'],
    ['log2-99', 'foreign'],
    ['log2-3~boot02-1', 'foreign'],
    ['log2-2.1', 'foreign'],
  ],
  '[CU4] after an event': [
    ['log1-2', at(2)],
    ['log1-5', at(5)],
    ['log1-6', 'ahead'],
    ['log1-999', 'ahead'],
  ],
  '[CU4] what was pruned': [
    ['log1-0', 'expired'],
    ['log1-1', at(1)],
    ['log1-1~boot02-1', 'expired'],
    ['log1-1.1', 'expired'],
  ],
  '[CU3] [CU4] inside a settled text': [
    ['log1-3~boot02-1', at(2, 1)],
    ['log1-3~boot02-2', at(2, 2)],
    ['log1-3~boot02-3', 'malformed'],
    ['log1-3~boot02-4', at(2, 4)],
    ['log1-3~boot02-5', 'malformed'],
    ['log1-3~boot02-6', at(2, 6)],
    ['log1-3~boot02-8', at(3)],
    ['log1-3~boot02-9', 'diverged'],
    ['log1-3~boot01-1', 'diverged'],
    ['log1-4~boot01-2', at(3, 2)],
    ['log1-4~boot02-2', 'diverged'],
    ['log1-2~boot02-2', 'diverged'],
    ['log1-5~boot02-1', 'diverged'],
  ],
  '[CU3] [CU4] inside the open run': [
    ['log1-6~boot02-1', at(5, 1), openRun],
    ['log1-6~boot02-10', at(5, 10), openRun],
    ['log1-6~boot02-11', 'ahead', openRun],
    ['log1-6~boot02-1', 'ahead'],
    ['log1-6~boot01-1', 'diverged', openRun],
    ['log1-6~boot01-1', 'diverged'],
    ['log1-7~boot02-1', 'ahead', openRun],
    ['log1-7~boot01-1', 'ahead'],
  ],
  'inside a prompt': [
    ['log1-2.1', at(1, 1)],
    ['log1-2.2', at(1, 2)],
    ['log1-2.3', at(2)],
    ['log1-2.4', 'malformed'],
    ['log1-3.1', 'malformed'],
    ['log1-5.1', 'malformed'],
    ['log1-6.1', 'ahead', openRun],
  ],
};

describe('cursors', () => {
  for (const [what, cases] of Object.entries(TABLE)) {
    for (const [cursor, expected, run] of cases) {
      const shown = typeof expected === 'string' ? expected : `(${expected.seq}, ${expected.offset})`;
      it(`${what}: ${JSON.stringify(cursor) ?? 'undefined'}${run ? ' with a run open' : ''} is ${shown}`, () => {
        const resolved = resolveCursor({ log, row, boot: BOOT, cursor, openRun: run });
        expect(resolved).toEqual(typeof expected === 'string' ? { reason: expected } : { ok: expected });
      });
    }
  }

  it('of the parent are foreign in a fork, and its own work on the events that it shares', async () => {
    const fork = sessionRow(2, { base: { num: 1, seq: 4 } });
    await log.commit({ appends: [], rows: [fork] });
    const resolve = (cursor: string) => resolveCursor({ log, row: fork, boot: BOOT, cursor });
    expect(resolve('log1-3')).toEqual({ reason: 'foreign' });
    expect(resolve('log2-3~boot02-2')).toEqual({ ok: at(2, 2) });
    expect(resolve('log2-4')).toEqual({ ok: at(4) });
    expect(resolve('log2-5')).toEqual({ reason: 'ahead' });
  });

  it('into an event that is missing are diverged, not a crash', async () => {
    const damaged = new MemoryEventLog();
    await damaged.commit({ appends: [{ num: 1, firstSeq: 1, records: RECORDS }], rows: [row] });
    damaged.remove(1, 3);
    const resolved = resolveCursor({ log: damaged, row, boot: BOOT, cursor: 'log1-3~boot02-1' });
    expect(resolved).toEqual({ reason: 'diverged' });
  });
});

describe('text boundaries', () => {
  it('are where the rest is still valid JSON text, and the two parts are the whole', () => {
    const unit = fc.constantFrom(
      'a',
      'u',
      '0',
      '\\\\',
      '\\"',
      '\\n',
      '\\u00e9',
      '\\ud83d\\ude00',
      'é',
      '€',
      '\u{1f600}',
    );
    fc.assert(
      fc.property(fc.array(unit, { maxLength: 12 }), fc.nat({ max: 5 }), (units, start) => {
        const body = Buffer.from(units.join(''), 'utf8');
        // Backslashes before the text must not count.
        const bytes = Buffer.concat([Buffer.alloc(start, '\\'), body, Buffer.from('"')]);
        const allowed = new Set<number>([0]);
        let offset = 0;
        for (const piece of units) {
          if (piece.length === 12) allowed.add(offset + 6);
          offset += Buffer.byteLength(piece);
          allowed.add(offset);
        }
        for (let i = 0; i < body.length; i++) {
          expect([i, isTextBoundary(bytes, start, start + i)]).toEqual([i, allowed.has(i)]);
        }
      }),
    );
  });
});
