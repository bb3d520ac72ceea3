import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  blockId,
  chunkId,
  comparePositions,
  type EventId,
  parseEventId,
  positionOf,
  settledId,
} from '../../protocol/event-id.ts';
import { propertyRuns } from '../support/properties.ts';

const word = fc.stringMatching(/^[a-z0-9]{1,32}$/);
const seq = fc.integer({ min: 1, max: 999_999_999_999_999 });
const eventIds: fc.Arbitrary<EventId> = fc.oneof(
  fc.record({ form: fc.constant('settled' as const), logId: word, seq: fc.oneof(fc.constant(0), seq) }),
  fc.record({ form: fc.constant('chunk' as const), logId: word, seq, boot: word, offset: seq }),
  fc.record({ form: fc.constant('block' as const), logId: word, seq, block: fc.integer({ min: 1, max: 999_999_999 }) }),
);

function textOf(id: EventId): string {
  switch (id.form) {
    case 'settled':
      return settledId(id.logId, id.seq);
    case 'chunk':
      return chunkId(id.logId, id.seq, id.boot, id.offset);
    case 'block':
      return blockId(id.logId, id.seq, id.block);
  }
}

describe('event ids', () => {
  it('[CU1] are written and read in three forms', () => {
    expect(parseEventId('k3f-17')).toEqual({ form: 'settled', logId: 'k3f', seq: 17 });
    expect(parseEventId('k3f-18~b7-40')).toEqual({ form: 'chunk', logId: 'k3f', seq: 18, boot: 'b7', offset: 40 });
    expect(parseEventId('k3f-3.2')).toEqual({ form: 'block', logId: 'k3f', seq: 3, block: 2 });
    fc.assert(
      fc.property(eventIds, (id) => {
        expect(parseEventId(textOf(id))).toEqual(id);
      }),
    );
  });

  it.each([
    undefined,
    null,
    17,
    {},
    [],
    '',
    '-',
    'k-',
    '-1',
    'k',
    'k-1 ',
    ' k-1',
    'k-1\n',
    'k-01',
    'k--1',
    'k-+1',
    'k-1.0',
    'k-1.5e3',
    'k-1e3',
    'K-1',
    'k-1~b',
    'k-1~b-0',
    'k-1~b-01',
    'k-1~-1',
    'k-0~b-1',
    'k-0.1',
    'k-1.',
    'k-1.1~b-1',
    'k-1~b-1.1',
    'k-9999999999999999',
    'k_-1',
    '\uff11-1',
    `${'k'.repeat(33)}-1`,
  ])('[CU2] %j is malformed', (text) => {
    expect(parseEventId(text)).toBeUndefined();
  });

  it('[CU2] any text is either malformed or the one way to write what it reads as', () => {
    const nearly = fc
      .tuple(eventIds, fc.nat(60), fc.constantFrom('0', '-', '~', '.', 'z', ' ', ''))
      .map(([id, at, put]) => {
        const text = textOf(id);
        return text.slice(0, at) + put + text.slice(at + 1);
      });
    fc.assert(
      fc.property(nearly, (text) => {
        const id = parseEventId(text);
        if (id) expect(textOf(id)).toBe(text);
      }),
      propertyRuns(2000),
    );
  });

  it('[CU1] stand in the order in which a client sees them', () => {
    const seen = ['k-0', 'k-1.1', 'k-1.2', 'k-1', 'k-2~b-3', 'k-2~b-10', 'k-2', 'k-3'];
    const positions = seen.map((text) => positionOf(parseEventId(text) as EventId));
    expect(positions.toSorted(comparePositions)).toEqual(positions);
    for (let i = 1; i < positions.length; i++) {
      const [before, after] = [positions[i - 1], positions[i]];
      if (before && after) expect(comparePositions(before, after)).toBeLessThan(0);
    }
    expect(positionOf(parseEventId('k-7') as EventId)).toEqual({ seq: 7, offset: 0 });
  });
});
