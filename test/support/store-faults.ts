/**
 * Faults between the sidecar and its store, built into a copy of the sidecar by `faultyStoreProgram`.
 *
 *   STORE_FAULT_FILE   `<n> <fault>`: how the n-th commit of the next process ends; read and removed at its start
 *   STORE_FULL_FILE    while this file exists the disk is full
 *   STORE_GAP_FILE     while this file exists the event whose seq it holds is missing
 *
 * Faults: `kill_before` and `kill_after` the commit, `fail_write` (nothing was written, the outcome is unknown),
 * `fail_flush` (it was written, the outcome is unknown), `no_space` (three times).
 */
import { existsSync, readFileSync, unlinkSync } from 'node:fs';
import type { CommitBatch, CommitOutcome, RecordVisitor, ScanOutcome } from '../../storage/event-log.ts';
import type { LmdbStore } from '../../storage/lmdb-event-log.ts';

export const STORE_FAULTS = ['kill_before', 'kill_after', 'fail_write', 'fail_flush', 'no_space'] as const;

const FULL: CommitOutcome = { outcome: 'not_committed', cause: 'no_space', message: 'No space left on device' };
const NO_SPACE_COMMITS = 3;

export function withFaults(store: LmdbStore): LmdbStore {
  const fullFile = process.env['STORE_FULL_FILE'] ?? '';
  const [at, fault] = takeFault(process.env['STORE_FAULT_FILE']);
  let commits = 0;
  let failed: CommitOutcome | undefined;
  const isFull = (): boolean => fullFile !== '' && existsSync(fullFile);
  const commit = async (batch: CommitBatch): Promise<CommitOutcome> => {
    if (failed) return failed;
    if (isFull()) return FULL;
    const n = ++commits;
    if (fault === 'no_space' && n >= at && n < at + NO_SPACE_COMMITS) return FULL;
    if (n !== at) return store.commit(batch);
    if (fault === 'kill_before') process.kill(process.pid, 'SIGKILL');
    if (fault === 'fail_write') return (failed = { outcome: 'unknown', message: 'Input/output error' });
    const outcome = await store.commit(batch);
    if (fault === 'kill_after') process.kill(process.pid, 'SIGKILL');
    if (fault === 'fail_flush') return (failed = { outcome: 'unknown', message: 'Input/output error' });
    return outcome;
  };
  const gapFile = process.env['STORE_GAP_FILE'] ?? '';
  const scan = (num: number, from: number, to: number, visit: RecordVisitor): ScanOutcome => {
    const gap = gapFile !== '' && existsSync(gapFile) ? Number(readFileSync(gapFile, 'utf8')) : 0;
    if (gap < from || gap > to) return store.scan(num, from, to, visit);
    let stopped = false;
    const before = store.scan(num, from, gap - 1, (...record) => {
      stopped = !visit(...record);
      return !stopped;
    });
    return stopped || before.outcome === 'gap' ? before : { outcome: 'gap', seq: gap };
  };
  return new Proxy(store, {
    get(target, name): unknown {
      if (name === 'commit') return commit;
      if (name === 'scan') return scan;
      if (name === 'lowOnSpace') return target.lowOnSpace || isFull();
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? (value as (...args: unknown[]) => unknown).bind(target) : value;
    },
  });
}

function takeFault(file: string | undefined): [at: number, fault: string] {
  if (file === undefined || !existsSync(file)) return [0, ''];
  const [at = '0', fault = ''] = readFileSync(file, 'utf8').trim().split(' ');
  unlinkSync(file);
  return [Number(at), fault];
}
