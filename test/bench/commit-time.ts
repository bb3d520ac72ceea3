/** How long one durable LMDB commit takes here and now, with the options the product's store uses. */
import { setTimeout as sleep } from 'node:timers/promises';
import { open } from 'lmdb';
import { nowNs } from './script.ts';

const RECORD_BYTES = 600;

/** Durations in nanoseconds of `count` commits of one record each, `everyMs` apart as the agent's tool events are. */
export async function commitTimesNs(directory: string, count: number, everyMs: number): Promise<readonly number[]> {
  const root = open({
    path: directory,
    encoding: 'binary',
    overlappingSync: false,
    eventTurnBatching: false,
    maxDbs: 8,
    maxReaders: 64,
    cache: false,
    compression: false,
  });
  const events = root.openDB<Buffer, Buffer>({ name: 'events', encoding: 'binary', keyEncoding: 'binary' });
  const timesNs: number[] = [];
  const startMs = performance.now();
  for (let i = 0; i < count; i++) {
    await sleep(Math.max(0, startMs + (i + 1) * everyMs - performance.now()));
    const key = Buffer.alloc(10);
    key.writeUInt32BE(i, 6);
    const fromNs = nowNs();
    await root.batch(() => void events.put(key, Buffer.alloc(RECORD_BYTES, 'x')));
    timesNs.push(nowNs() - fromNs);
  }
  await root.close();
  return timesNs;
}
