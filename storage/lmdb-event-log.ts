/**
 * The event log on LMDB. The engine's own defaults are not used, each of these rules has a failure behind it:
 *
 * 1. `overlappingSync: false`: what a read sees is durable, and an I/O error is never acknowledged.
 * 2. `eventTurnBatching: false` and one explicit `batch` per commit: a failed commit can be caught.
 * 3. no `commitDelay`.
 * 4. the disk's free space is looked at before opening.
 * 5. after any commit error but ENOSPC this process writes no more.
 *
 * Databases: `events` (u32 session, u48 seq -> record), `sessions` (sessionId -> row, JSON), `meta`. The root database
 * stays empty; clearing it corrupts the others. How another process reads it is told in `read-view.ts`.
 */
import { chmodSync, rmSync, type Stats, statSync } from 'node:fs';
import { join } from 'node:path';
import type { RangeOptions, Transaction } from 'lmdb';
import type {
  CommitBatch,
  CommitOutcome,
  EventLog,
  RecordVisitor,
  ScanOutcome,
  SessionRemoval,
  SessionRow,
} from './event-log.ts';
import { checkDataFile, dataFile, dataFileLost, syncDirectory } from './data-file.ts';
import { type Databases, type EventsDatabase, openDatabases, parseRow } from './lmdb-databases.ts';
import { FailStop } from './fail-stop.ts';
import { type ForgottenIds, idsOf, tombstonesOf } from './forgotten-ids.ts';
import { type Segment, segmentsOf } from './lineage.ts';
import { EVENT_KEY_BYTES, eventKey, MAX_SEQ, numOfKey, seqOfKey, sessionKey, writeSeq } from './log-keys.ts';
import { holdPages, linkedStore } from './read-view.ts';
import { StoreOpenError, unusable } from './store-error.ts';
import { json, markAsCopy, META, prepareStore, readForgotten, readJson, readStoreId } from './store-meta.ts';
import { acquireStoreLock, prepareStoreDir, type StoreLock } from './store-lock.ts';
import { BALLAST_BYTES, Ballast, MIN_FREE_BYTES, requireFreeSpace } from './store-space.ts';

const COMMIT_TIMEOUT_MS = 30_000;
const PREFETCH_KEYS = 256;
const MAX_NUM = 0xffffffff;

export interface LmdbEventLogOptions {
  /** Milliseconds since 1970. */
  readonly now?: () => number;
  /** Free bytes needed to open, 64 MiB. */
  readonly minFreeBytes?: number;
  /** Size of the reserve for a full disk, 16 MiB. */
  readonly ballastBytes?: number;
  /** The disk is as good as full and nothing new is to begin; or, with false, there is room again. */
  readonly onLowSpace?: (low: boolean) => void;
  /** A commit that takes longer has the outcome `unknown`, 30 s. */
  readonly commitTimeoutMs?: number;
}

/** What this store can beside the contract. */
export interface LmdbStore extends EventLog {
  /**
   * Writes a copy of this moment to a new directory, also while another process writes. It is a store of its own: it
   * renews its log ids when it is opened for writing, also in the place of the original.
   */
  backup(dir: string): Promise<void>;
}

const SCAN_ENDED: ScanOutcome = { outcome: 'end' };

/**
 * Opens the store in `dir`, makes it when there is none, and takes its lock until `close`.
 * @throws StoreOpenError `held`, `newer`, `damaged`, `no_space`, `unsafe_path`, `unusable`
 */
export async function openLmdbEventLog(dir: string, options: LmdbEventLogOptions = {}): Promise<LmdbStore> {
  const path = prepareStoreDir(dir);
  const lock = await lockStore(path).catch((error: unknown) => {
    throw unusable(`the store ${path}`, error);
  });
  let databases: Databases | undefined;
  try {
    requireFreeSpace(path, options.minFreeBytes ?? MIN_FREE_BYTES);
    const fresh = !checkDataFile(path);
    databases = openDatabases(path, false);
    chmodSync(dataFile(path), 0o600);
    chmodSync(join(path, 'lock.mdb'), 0o600);
    if (fresh) syncDirectory(path);
    const storeId = await prepareStore(databases, path, (options.now ?? Date.now)());
    const { root } = databases;
    lock.holds.serve(() => {
      const transaction = root.useReadTransaction();
      return () => transaction.done();
    });
    const ballast = new Ballast(path, options.ballastBytes ?? BALLAST_BYTES, options.onLowSpace);
    return new LmdbEventLog(databases, storeId, path, {
      lock,
      ballast,
      failStop: new FailStop(ballast, options.commitTimeoutMs ?? COMMIT_TIMEOUT_MS),
    });
  } catch (error) {
    await databases?.root.close();
    await lock.release();
    throw unusable(`the store ${path}`, error);
  }
}

/**
 * Opens a store for reading, also while a server has it: takes no lock and writes nothing. All of it is of this moment.
 * @throws StoreOpenError `missing`, `newer`, `damaged`
 */
export async function openLmdbEventLogReadOnly(dir: string): Promise<LmdbStore> {
  if (!checkDataFile(dir)) throw new StoreOpenError('missing', `${dir} has no store`);
  const letGo = await holdPages(dir);
  let databases: Databases | undefined;
  try {
    const link = linkedStore(dir);
    try {
      databases = openDatabases(link.path, true);
    } finally {
      link.remove();
    }
    const transaction = databases.root.useReadTransaction();
    return new LmdbEventLog(databases, readStoreId(databases, dir), dir, undefined, { transaction, letGo });
  } catch (error) {
    letGo();
    await databases?.root.close();
    throw error;
  }
}

async function lockStore(path: string): Promise<StoreLock> {
  try {
    const result = await acquireStoreLock(path);
    if ('lock' in result) return result.lock;
    const { pid } = result.held;
    throw new StoreOpenError('held', `${path} is in use by process ${pid || '(unknown)'}`, pid);
  } catch (error) {
    if (!(error instanceof Error) || !('code' in error) || error.code !== 'ENOSPC') throw error;
    throw new StoreOpenError('no_space', `${path} is on a full disk`);
  }
}

/** What a log has that only reads. */
interface Reader {
  /** Everything is read in it. */
  readonly transaction: Transaction;
  /** The owner need not keep its pages any more. */
  readonly letGo: () => void;
}

/** What a log needs to write. */
interface Writer {
  readonly lock: StoreLock;
  readonly ballast: Ballast;
  readonly failStop: FailStop;
}

class LmdbEventLog implements LmdbStore {
  readonly storeId: string;
  readonly #databases: Databases;
  readonly #writer: Writer | undefined;
  readonly #reader: Reader | undefined;
  readonly #path: string;
  readonly #opened: Stats;
  readonly #rows = new Map<string, SessionRow>();
  readonly #byNum = new Map<number, SessionRow>();
  /** Last committed seq by session number, filled on first use. */
  readonly #heads = new Map<number, number>();
  /** The one key that scans and commits write their seq into; LMDB copies it in each call. */
  readonly #key = Buffer.alloc(EVENT_KEY_BYTES);
  #forgotten: ForgottenIds;
  #next: number;
  readonly firstOwnNum: number;
  #durableNext: number;
  #inFlight: Promise<CommitOutcome> | undefined;

  constructor(databases: Databases, storeId: string, dir: string, writer: Writer | undefined, reader?: Reader) {
    this.storeId = storeId;
    this.#databases = databases;
    this.#writer = writer;
    this.#reader = reader;
    this.#path = dataFile(dir);
    this.#opened = statSync(this.#path);
    for (const { key, value } of databases.sessions.getRange({ ...reader })) this.#keep(parseRow(dir, key, value));
    this.#forgotten = readForgotten(databases.meta, dir, reader);
    // Events whose row never came (an import that was cut off) keep their number for themselves too.
    const last = this.#keys({ start: eventKey(MAX_NUM, MAX_SEQ), reverse: true, limit: 1 });
    let next = 1;
    for (const key of last) next = numOfKey(key) + 1;
    for (const num of this.#byNum.keys()) next = Math.max(next, num + 1);
    this.#durableNext = Number(readJson(databases.meta, META.nextNum) ?? 1);
    this.#next = Math.max(next, this.#durableNext);
    this.firstOwnNum = this.#next;
  }

  get lowOnSpace(): boolean {
    return this.#writer?.ballast.given ?? false;
  }

  rows(): IterableIterator<SessionRow> {
    return this.#rows.values();
  }

  row(sessionId: string): SessionRow | undefined {
    return this.#rows.get(sessionId);
  }

  isForgotten(id: string): boolean {
    return this.#forgotten.has(id);
  }

  nextNum(): number {
    return this.#next++;
  }

  lastSeq(num: number): number {
    const known = this.#heads.get(num);
    if (known !== undefined) return known;
    let head = this.#byNum.get(num)?.base?.seq ?? 0;
    const last = this.#keys({ start: eventKey(num, MAX_SEQ), end: eventKey(num, 0), reverse: true, limit: 1 });
    for (const key of last) head = Math.max(head, seqOfKey(key));
    this.#heads.set(num, head);
    return head;
  }

  storedNums(): number[] {
    const nums: number[] = [];
    for (let from = 0; ; ) {
      const before = nums.length;
      for (const key of this.#keys({ start: eventKey(from, 0), limit: 1 })) nums.push(numOfKey(key));
      if (nums.length === before) return nums;
      from = (nums.at(-1) as number) + 1;
    }
  }

  firstStored(num: number, from: number): number | undefined {
    const first = this.#keys({ start: eventKey(num, from), end: eventKey(num, MAX_SEQ), limit: 1 });
    for (const key of first) return seqOfKey(key);
    return undefined;
  }

  scan(num: number, from: number, to: number, visit: RecordVisitor): ScanOutcome {
    const last = Math.min(to, this.lastSeq(num));
    for (const segment of this.#segments(num, from, last)) {
      const outcome = this.#scanSegment(segment.num, segment.from, segment.to, visit);
      if (outcome) return outcome;
    }
    return SCAN_ENDED;
  }

  async prefetch(num: number, from: number, to: number): Promise<void> {
    const { events } = this.#databases;
    for (const segment of this.#segments(num, from, Math.min(to, this.lastSeq(num)))) {
      for (let at = segment.from; at <= segment.to; at += PREFETCH_KEYS) {
        const count = Math.min(PREFETCH_KEYS, segment.to - at + 1);
        await events.prefetch(Array.from({ length: count }, (_, i) => eventKey(segment.num, at + i)));
      }
    }
  }

  commit(batch: CommitBatch): Promise<CommitOutcome> {
    if (!this.#writer) throw new Error('the log was opened for reading');
    const { failStop, lock } = this.#writer;
    if (failStop.failed) return Promise.resolve(failStop.failed);
    if (this.#inFlight) throw new Error('another commit is in flight');
    const rows = batch.rows.map((row) => ({ row, key: sessionKey(row.sessionId), value: json(row) }));
    this.#requireContiguous(batch);
    const gone = tombstonesOf((id) => this.#rows.get(id), batch.forgets);
    const forgotten = this.#forgotten.with(gone.flatMap(idsOf));
    const lost = dataFileLost(this.#path, this.#opened) ?? lock.lost();
    if (lost !== undefined) return Promise.resolve(failStop.fail(lost));
    let next = this.#durableNext;
    for (const { num } of [...batch.rows, ...gone]) next = Math.max(next, num + 1);
    const { root, events, sessions, meta } = this.#databases;
    const write = (): Promise<boolean> =>
      root.batch(() => {
        for (const removal of batch.removals ?? []) this.#removeRecords(events, removal);
        for (const append of batch.appends) this.#putRecords(events, append.num, append.firstSeq, append.records);
        for (const { sessionId } of gone) void sessions.remove(sessionKey(sessionId));
        if (forgotten !== this.#forgotten) void meta.put(META.forgotten, forgotten.block);
        for (const { key, value } of rows) void sessions.put(key, value);
        if (next > this.#durableNext) void meta.put(META.nextNum, json(next));
      });
    const bytes = bytesOf(batch) + (gone.length > 0 ? forgotten.block.length : 0);
    this.#inFlight = failStop.run(write, bytes).then((outcome) => {
      this.#inFlight = undefined;
      if (outcome.outcome !== 'committed') return outcome;
      for (const row of gone) this.#drop(row);
      this.#forgotten = forgotten;
      for (const { row } of rows) {
        this.#keep(row);
        // A fork's head begins at its base, which was not known when it was looked up before.
        if (row.base) this.#heads.delete(row.num);
      }
      for (const { num, firstSeq, records } of batch.appends) this.#heads.set(num, firstSeq + records.length - 1);
      this.#durableNext = next;
      this.#next = Math.max(this.#next, next);
      return outcome;
    });
    return this.#inFlight;
  }

  bytes(): number {
    return statSync(this.#path, { throwIfNoEntry: false })?.size ?? 0;
  }

  async backup(dir: string): Promise<void> {
    await this.#databases.root.backup(dir, true);
    const copy = openDatabases(dir, false);
    await markAsCopy(copy);
    await copy.root.close();
    rmSync(join(dir, 'lock.mdb'), { force: true });
  }

  async close(): Promise<void> {
    await this.#inFlight;
    await this.#writer?.ballast.close();
    // A failed environment hangs in close, and its lock must outlive whatever still runs in it: until this process ends.
    if (this.#writer?.failStop.failed) return;
    this.#writer?.lock.holds.end();
    this.#reader?.transaction.done();
    this.#reader?.letGo();
    await this.#databases.root.close();
    await this.#writer?.lock.release();
  }

  #keys(range: RangeOptions): Iterable<Buffer> {
    return this.#databases.events.getKeys({ ...range, ...this.#reader });
  }

  #segments(num: number, from: number, to: number): Segment[] {
    return segmentsOf((of) => this.#byNum.get(of), num, from, to);
  }

  #scanSegment(num: number, from: number, to: number, visit: RecordVisitor): ScanOutcome | undefined {
    const { events } = this.#databases;
    const reader = this.#reader;
    const key = this.#key;
    key.writeUInt32BE(num, 0);
    for (let seq = from; seq <= to; seq++) {
      writeSeq(key, seq);
      // LMDB's own buffer, overwritten by the next read; its `length` is the record's.
      const found = events.getBinaryFast(key, reader);
      if (found === undefined) return { outcome: 'gap', seq };
      // Over 16 MiB it gives a plain Uint8Array, whatever its types say.
      const record = Buffer.isBuffer(found) ? found : asBuffer(found);
      if (!visit(seq, record, record.length)) return SCAN_ENDED;
    }
    return undefined;
  }

  #putRecords(events: EventsDatabase, num: number, firstSeq: number, records: readonly Buffer[]): void {
    const key = this.#key;
    key.writeUInt32BE(num, 0);
    for (let i = 0; i < records.length; i++) {
      writeSeq(key, firstSeq + i);
      void events.put(key, records[i] as Buffer);
    }
  }

  #removeRecords(events: EventsDatabase, { num, from, to, pruned }: SessionRemoval): void {
    for (let seq = from; seq <= to; seq++) void events.remove(eventKey(num, seq));
    if (pruned) void events.put(eventKey(num, to), pruned);
  }

  #requireContiguous(batch: CommitBatch): void {
    const seen = new Set<number>();
    for (const { num, firstSeq, records } of batch.appends) {
      if (seen.has(num)) throw new Error(`session ${num} is twice in a batch`);
      seen.add(num);
      const base = batch.rows.find((row) => row.num === num)?.base?.seq ?? 0;
      const head = Math.max(this.lastSeq(num), base);
      if (firstSeq !== head + 1) throw new Error(`session ${num} is at ${head}, a record came for ${firstSeq}`);
      if (firstSeq + records.length - 1 > MAX_SEQ) throw new Error(`session ${num} is full`);
    }
  }

  #keep(row: SessionRow): void {
    this.#rows.set(row.sessionId, row);
    this.#byNum.set(row.num, row);
  }

  #drop({ sessionId, num }: SessionRow): void {
    this.#rows.delete(sessionId);
    this.#byNum.delete(num);
    this.#heads.delete(num);
  }
}

function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function bytesOf({ appends }: CommitBatch): number {
  let bytes = 0;
  for (const { records } of appends) for (const record of records) bytes += record.length;
  return bytes;
}
