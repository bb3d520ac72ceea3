import fc from 'fast-check';

// Every run of the tests tries the same cases, so that one that fails fails again. `npm run test:properties` tries
// new ones, and many more; a failure prints its seed.
const times = process.env['PROPERTY_TIMES'];
fc.configureGlobal(times === undefined ? { seed: 20261130 } : { numRuns: 100 * Number(times) });

/** For a property that needs more runs than the usual hundred. */
export function propertyRuns(count: number): { numRuns: number } {
  return { numRuns: count * Number(times ?? 1) };
}

/** Whatever JSON can say. Not -0: JSON text can hold it, but JavaScript writes it as 0. */
export function jsonValue(constraints?: fc.JsonSharedConstraints): fc.Arbitrary<unknown> {
  return fc.jsonValue(constraints).map((value) => JSON.parse(JSON.stringify(value)) as unknown);
}
