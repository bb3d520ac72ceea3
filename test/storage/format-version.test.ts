import { describe, expect, it } from 'vitest';
import { FORMAT_VERSION, type Migration, planFormat } from '../../storage/format-version.ts';

const chain: Migration<string[]>[] = [1, 2, 3].map((from) => ({ from, run: (done) => void done.push(`${from}`) }));

describe('format version', () => {
  it('a new store is made, one that has events but no version is damaged', () => {
    expect(planFormat(undefined, true, chain)).toEqual({ plan: 'create' });
    expect(planFormat(undefined, false, chain).plan).toBe('damaged');
  });

  it('the version of today is opened, a newer one is refused', () => {
    expect(planFormat(FORMAT_VERSION, false, [])).toEqual({ plan: 'open' });
    expect(planFormat(FORMAT_VERSION + 1, false, [])).toEqual({ plan: 'newer', found: FORMAT_VERSION + 1 });
  });

  it.each([[0], [-1], [1.5], ['1'], [null], [{}]])('%j is no version', (stored) => {
    expect(planFormat(stored, false, chain).plan).toBe('damaged');
  });

  it('an older store goes through every step in order', () => {
    const plan = planFormat(2, false, chain, 4);
    const done: string[] = [];
    if (plan.plan === 'migrate') for (const step of plan.steps) step.run(done);
    expect(done).toEqual(['2', '3']);
  });

  it('a chain with a missing step moves nothing', () => {
    const broken = chain.filter((step) => step.from !== 2);
    expect(planFormat(1, false, broken, 4).plan).toBe('damaged');
  });
});
