/**
 * A process that has a store, for tests that need a second one or kill it.
 *
 *   store-program.js lock DIR             takes the lock; one line of JSON, `"locked"` or `{"held":{"pid":1}}`
 *   store-program.js append DIR SESSIONS ROUNDS
 *                                         opens the log, prints `{"ready":[heads]}`, then appends in groups and prints
 *                                         `[num, seq]` for the last record of each session once it is committed; after
 *                                         ROUNDS rounds (for ever when not given) one more for every byte on stdin
 *   store-program.js forget DIR           for ever writes rows of deleted sessions, prints the number of the last one, then
 *                                         forgets all that are there
 *
 * They hold what they have until their stdin ends.
 */
import { encodeRecord } from '../../storage/event-codec.ts';
import { acquireStoreLock, prepareStoreDir } from '../../storage/store-lock.ts';
import { sessionRow } from './session-row.ts';

function print(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

/** The payload of an event says which one it is, so that a reader can tell that it is the right one. */
function record(num: number, seq: number): Buffer {
  const payload = JSON.stringify({ num, seq, filler: 'x'.repeat((seq * 37) % 3000) });
  return encodeRecord({ type: 'update', time: seq, payload }, { boot: 'boot01' });
}

async function append(dir: string, sessions: number, rounds: number): Promise<void> {
  // Loaded here: the rivals for a lock should be quick.
  const { openLmdbEventLog } = await import('../../storage/lmdb-event-log.ts');
  const log = await openLmdbEventLog(dir, { minFreeBytes: 0, ballastBytes: 1024 });
  const nums = Array.from({ length: sessions }, (_, i) => i + 1);
  print({ ready: nums.map((num) => log.lastSeq(num)) });
  const more = process.stdin[Symbol.asyncIterator]();
  for (let round = 1; ; round++) {
    if (round > rounds && (await more.next()).done) break;
    const appends = nums.map((num) => {
      const firstSeq = log.lastSeq(num) + 1;
      const count = 1 + ((round * num) % 7);
      return { num, firstSeq, records: Array.from({ length: count }, (_, i) => record(num, firstSeq + i)) };
    });
    const rows = nums.map((num) => sessionRow(num, { updatedAt: log.lastSeq(num) }));
    const outcome = await log.commit({ appends, rows });
    if (outcome.outcome !== 'committed') throw new Error(JSON.stringify(outcome));
    for (const num of nums) print([num, log.lastSeq(num)]);
  }
}

async function forget(dir: string): Promise<void> {
  const { openLmdbEventLog } = await import('../../storage/lmdb-event-log.ts');
  const log = await openLmdbEventLog(dir, { minFreeBytes: 0, ballastBytes: 1024 });
  for (;;) {
    const rows = Array.from({ length: 100 }, () => log.nextNum()).map((num) =>
      sessionRow(num, { tombstone: true, bound: [`agent-${num}`] }),
    );
    const deleted = await log.commit({ appends: [], rows });
    print(rows.at(-1)?.num);
    const forgets = Array.from(log.rows(), ({ sessionId }) => sessionId);
    const forgotten = await log.commit({ appends: [], rows: [], forgets });
    for (const outcome of [deleted, forgotten]) {
      if (outcome.outcome !== 'committed') throw new Error(JSON.stringify(outcome));
    }
  }
}

async function lock(dir: string): Promise<void> {
  const result = await acquireStoreLock(prepareStoreDir(dir));
  print('lock' in result ? 'locked' : result);
  // Its socket does not keep a process alive.
  process.stdin.on('end', () => process.exit(0)).resume();
}

const [mode, dir = '', sessions = '1', rounds = 'Infinity'] = process.argv.slice(2);
if (mode === 'append') await append(dir, Number(sessions), Number(rounds));
else await (mode === 'forget' ? forget(dir) : lock(dir));
