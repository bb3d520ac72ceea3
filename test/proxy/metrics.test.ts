import { describe, expect, it } from 'vitest';
import { Counter, Histogram, Metrics, turnOutcome } from '../../proxy/metrics.ts';
import type { CommitOutcome } from '../../storage/event-log.ts';

describe('metrics', () => {
  it('a counter shows the values that are known from the start, and adds others', () => {
    const counter = new Counter([['a'], ['b']]);
    counter.add(['a']);
    counter.add(['a'], 2);
    counter.add(['c']);
    expect([...counter.values()].map(({ labels, count }) => [...labels, count])).toEqual([
      ['a', 3],
      ['b', 0],
      ['c', 1],
    ]);
  });

  it('a histogram puts a value into the first bucket that holds it', () => {
    const histogram = new Histogram([1, 5]);
    for (const value of [0, 1, 1.5, 5, 6]) histogram.observe(value);
    expect(histogram.counts).toEqual([2, 2, 1]);
    expect(histogram.sum).toBe(13.5);
  });

  it('what an agent says as its stop reason makes no label of its own', () => {
    expect(turnOutcome('end_turn')).toBe('end_turn');
    expect(turnOutcome('evil"label')).toBe('other');
    expect(turnOutcome(undefined)).toBe('other');
  });

  it('times each commit and counts only what has become durable', async () => {
    const outcomes: CommitOutcome[] = [
      { outcome: 'committed' },
      { outcome: 'not_committed', cause: 'no_space', message: 'full' },
    ];
    const metrics = new Metrics();
    let now = 0;
    const log = metrics.timed(
      {
        commit: () => {
          now += 7;
          return Promise.resolve(outcomes.shift() as CommitOutcome);
        },
      },
      () => now,
    );
    const batch = { appends: [{ num: 1, firstSeq: 1, records: [Buffer.alloc(10), Buffer.alloc(5)] }], rows: [] };
    await log.commit(batch);
    await log.commit(batch);
    expect(metrics.events).toBe(2);
    expect(metrics.eventBytes).toBe(15);
    expect(metrics.flush.sum).toBeCloseTo(0.014);
    expect([...metrics.commits.values()].map(({ count }) => count)).toEqual([1, 1, 0]);
  });

  it('the first start of the agent is none again', () => {
    const metrics = new Metrics();
    metrics.agentStart('failed');
    metrics.agentStart('started');
    metrics.agentStart('started');
    expect([...metrics.agentStarts.values()].map(({ count }) => count)).toEqual([2, 1]);
    expect([...metrics.agentRestarts.values()].map(({ count }) => count)).toEqual([1]);
  });
});
