/** Mulberry32: the same seed gives the same numbers in [0, 1), so that a failure can be had again. */
export function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** At most `count` of the items, in their order. All of them when `ACP_TEST_ALL` is set. */
export function sample<T>(items: readonly T[], count: number, random: () => number): T[] {
  if (items.length <= count || process.env['ACP_TEST_ALL']) return [...items];
  let needed = count;
  return items.filter((_item, i) => {
    const take = random() < needed / (items.length - i);
    if (take) needed--;
    return take;
  });
}
