import { expect, it } from 'vitest';
import { MemoryEventLog } from '../../storage/memory-event-log.ts';
import { eventLogContract } from '../contract/event-log.contract.ts';
import { sessionRow } from '../support/session-row.ts';

eventLogContract('memory', () => ({
  open: () => Promise.resolve(new MemoryEventLog()),
  durable: false,
}));

it('a gap in the log ends a scan with its seq', async () => {
  const log = new MemoryEventLog();
  await log.commit({
    appends: [{ num: 1, firstSeq: 1, records: ['a', 'b', 'c'].map((t) => Buffer.from(t)) }],
    rows: [],
  });
  log.remove(1, 2);
  const seen: number[] = [];
  const outcome = log.scan(1, 1, 3, (seq) => seen.push(seq) > 0);
  expect(outcome).toEqual({ outcome: 'gap', seq: 2 });
  expect(seen).toEqual([1]);
});

it('faults come once each, in order; after an unknown outcome nothing is written', async () => {
  const log = new MemoryEventLog();
  const batch = { appends: [{ num: 1, firstSeq: 1, records: [Buffer.from('a')] }], rows: [sessionRow(1)] };
  log.failNext('no_space');
  log.failNext('unknown');
  expect((await log.commit(batch)).outcome).toBe('not_committed');
  expect(log.lastSeq(1)).toBe(0);
  expect((await log.commit(batch)).outcome).toBe('unknown');
  expect((await log.commit(batch)).outcome).toBe('unknown');
  expect(log.lastSeq(1)).toBe(0);
});
