import '../support/properties.ts';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { ForgottenIds } from '../../storage/forgotten-ids.ts';

const ID = fc.oneof(fc.string(), fc.string({ unit: 'binary' }), fc.nat(50).map(String), fc.constant('\ud83d'));

function again(ids: ForgottenIds): ForgottenIds {
  const read = ForgottenIds.read(Buffer.from(ids.block));
  if (typeof read === 'string') throw new Error(read);
  return read;
}

it('[RT6] forgotten ids are what a set of them would be, also after a restart', () => {
  fc.assert(
    fc.property(fc.array(fc.array(ID)), fc.array(ID), (rounds, asked) => {
      const set = new Set(rounds.flat());
      let ids = ForgottenIds.NONE;
      for (const round of rounds) ids = again(ids.with(round));
      expect(ids.size).toBe(set.size);
      for (const id of [...set, ...asked]) expect(ids.has(id)).toBe(set.has(id));
      // In whatever order they came.
      expect(ForgottenIds.NONE.with([...set].toReversed()).block.equals(ids.block)).toBe(true);
      expect(ids.with([...set])).toBe(ids);
    }),
  );
});

it('[RT6] an id costs 8 bytes, and the block is not changed by what comes after it', () => {
  const ids = ForgottenIds.NONE.with(Array.from({ length: 10_000 }, (_, i) => `session-${i}`));
  expect(ids.block.length).toBe(80_005);
  const before = Buffer.from(ids.block);
  expect(ids.with(['one more']).block.length).toBe(80_013);
  expect(ids.block.equals(before)).toBe(true);
});

it('every byte that is changed, and every one that is missing, is found', () => {
  const { block } = ForgottenIds.NONE.with(['a', 'b', 'c']);
  for (let at = 0; at < block.length; at++) {
    const changed = Buffer.from(block);
    changed[at] = (changed[at] as number) ^ 1;
    expect(ForgottenIds.read(changed)).toBe('damaged');
    expect(ForgottenIds.read(block.subarray(0, at))).toBe('damaged');
  }
  const newer = Buffer.from(block);
  newer[0] = 2;
  expect(ForgottenIds.read(newer)).toBe('newer');
});
