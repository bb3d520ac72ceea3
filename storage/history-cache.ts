/**
 * The chat history of sessions: messages and tool calls with their final states, folded from the log and kept in files
 * that may vanish, lag or lie at any moment.
 *
 *   page / recent --> caught up with the log? --no--> fold the rest, a slice of events at a time --> read entries
 *                          |                                                                          |
 *                          +-- other log, reducer or layout, or a checksum is wrong: begin anew <-----+
 *
 * The log is the truth: every answer is of the events up to the log's last one when it was asked. Nothing here writes
 * to the log, and no failure of the cache's disk is a failure of an answer: it is then folded in memory.
 *
 * For whoever needs the latest messages (priming an agent): `recentMessages(session, maxBytes)` gives them newest first.
 */
import { rmSync } from 'node:fs';
import { settledId } from '../protocol/event-id.ts';
import type { JsonObject } from '../protocol/json-rpc.ts';
import { REDUCER_VERSION } from '../protocol/v1/transcript.ts';
import type { UnreadableRecord } from './event-codec.ts';
import type { EventLog, SessionRow } from './event-log.ts';
import { HistoryFile, type HistoryIdentity } from './history-file.ts';
import { HistoryFold, patchEntry, readEntry, recordCrc } from './history-fold.ts';
import { createFile, historyPath, openFile, prepareCacheDir } from './history-dir.ts';
import { MemoryMedium } from './history-medium.ts';
import { type HistoryMessage, historyMessage } from './history-message.ts';

export type { HistoryMessage } from './history-message.ts';

const SLICE_EVENTS = 256;
/** A slice ends early so that clients are served in between. */
const SLICE_MS = 8;
const PAGE_MESSAGES = 50;
const MAX_PAGE_MESSAGES = 1000;
const PAGE_BYTES = 1024 * 1024;
/** Sessions whose index is kept in memory: 24 bytes an entry. */
const HOT_SESSIONS = 16;
/** A file is made anew when it has grown to three times its first size and this. */
const SLACK_BYTES = 8 * 1024 * 1024;
const ATTEMPTS = 3;

export interface PageQuestion {
  /** Only messages that began before this event. */
  readonly beforeSeq?: number | undefined;
  /** 1 to 1000, 50. */
  readonly limit?: number | undefined;
  /** Updates that are shown although they are not in the log: what repair would append. They only change entries. */
  readonly also?: readonly JsonObject[] | undefined;
}

export interface HistoryPage {
  /** Newest first. At least one when there is any, at most about 1 MiB. */
  readonly messages: readonly HistoryMessage[];
  /** The last event that they take into account. */
  readonly lastEventId: string;
  /** `before` of the next older page. */
  readonly nextBefore?: string;
}

/** The log itself cannot be read at `seq`. */
export class HistoryLogDamage extends Error {
  readonly seq: number;

  constructor(seq: number, detail: string) {
    super(detail);
    this.name = 'HistoryLogDamage';
    this.seq = seq;
  }
}

interface Hot {
  readonly fold: HistoryFold;
  readonly identity: HistoryIdentity;
  /** Size of the file when it was opened or first caught up. */
  firstBytes: number;
  /** The catching up that is under way. */
  busy: Promise<void> | undefined;
}

export class HistoryCache {
  readonly #log: EventLog;
  readonly #dir: string | undefined;
  readonly #hot = new Map<number, Hot>();

  /** @param dir where its files lie, made when it is missing; undefined: in memory */
  constructor(log: EventLog, dir: string | undefined) {
    this.#log = log;
    this.#dir = dir !== undefined && prepareCacheDir(dir) ? dir : undefined;
  }

  /** @throws HistoryLogDamage */
  async page(
    row: SessionRow,
    { beforeSeq, limit = PAGE_MESSAGES, also = [] }: PageQuestion = {},
  ): Promise<HistoryPage> {
    return this.#read(row, ({ file }) => {
      const count = Math.min(Math.max(1, limit), MAX_PAGE_MESSAGES);
      let at = beforeSeq === undefined ? file.entries : file.entriesBefore(beforeSeq);
      const messages = take(file, row, at, { count, maxBytes: PAGE_BYTES, atLeast: 1, also });
      at -= messages.length;
      return {
        messages,
        lastEventId: settledId(row.logId, file.mark.lastSeq),
        ...(at > 0 && messages.length > 0 && { nextBefore: (messages.at(-1) as HistoryMessage).eventId }),
      };
    });
  }

  /**
   * The latest messages, newest first, whose JSON has about `maxBytes` together at most. None when the newest alone is
   * longer.
   * @throws HistoryLogDamage
   */
  async recent(row: SessionRow, maxBytes: number): Promise<readonly HistoryMessage[]> {
    return this.#read(row, ({ file }) =>
      take(file, row, file.entries, { count: Infinity, maxBytes, atLeast: 0, also: [] }),
    );
  }

  /** The session is gone, and its history with it. */
  forget(num: number): void {
    this.#hot.get(num)?.fold.file.close();
    this.#hot.delete(num);
    if (this.#dir !== undefined) rmSync(historyPath(this.#dir, num), { force: true, recursive: true });
  }

  close(): void {
    for (const { fold } of this.#hot.values()) fold.file.close();
    this.#hot.clear();
  }

  /** Reads at the log's tip. A cache that turns out wrong while it is read is made anew, at last in memory. */
  async #read<T>(asked: SessionRow, read: (fold: HistoryFold) => T): Promise<T> {
    let row = asked;
    for (let attempt = 1; ; attempt++) {
      try {
        return read(await this.#current(row, attempt >= ATTEMPTS));
      } catch (error) {
        const now = this.#log.row(row.sessionId);
        // What is missing may have been pruned while it was read.
        const pruned = now !== undefined && now.num === row.num && now.low > row.low;
        if (attempt > ATTEMPTS || (error instanceof HistoryLogDamage && !pruned)) throw error;
        if (pruned) row = now;
        this.#discard(row.num);
      }
    }
  }

  async #current(row: SessionRow, inMemory: boolean): Promise<HistoryFold> {
    const target = this.#log.lastSeq(row.num);
    for (;;) {
      let hot = this.#hot.get(row.num);
      if (hot && !hot.busy && (!isOf(hot.identity, row) || hot.fold.file.gone || isBloated(hot))) {
        this.#discard(row.num);
        hot = undefined;
      }
      hot ??= this.#open(row, inMemory);
      this.#hot.delete(row.num);
      this.#hot.set(row.num, hot);
      this.#cool();
      if (hot.busy) {
        await hot.busy;
        continue;
      }
      if (hot.fold.seq >= target && hot.fold.file.mark.lastSeq >= target) return hot.fold;
      const busy = this.#catchUp(row, hot.fold, target);
      hot.busy = busy;
      try {
        await busy;
        hot.firstBytes ||= hot.fold.file.bytes;
      } finally {
        hot.busy = undefined;
      }
    }
  }

  async #catchUp(row: SessionRow, fold: HistoryFold, target: number): Promise<void> {
    while (fold.seq < target) {
      const from = fold.seq + 1;
      const to = Math.min(target, fold.seq + SLICE_EVENTS);
      await this.#log.prefetch(row.num, from, to);
      const deadline = performance.now() + SLICE_MS;
      let bad: UnreadableRecord | undefined;
      const scan = this.#log.scan(row.num, from, to, (seq, record, length) => {
        bad = fold.fold(seq, record, length);
        return bad === undefined && performance.now() < deadline;
      });
      if (bad) throw new HistoryLogDamage(bad.seq, bad.detail);
      if (scan.outcome === 'gap') throw new HistoryLogDamage(scan.seq, 'it is missing');
      if (fold.windowIsFull) fold.commit();
      if (fold.seq < target) await new Promise((resolve) => setImmediate(resolve));
    }
    fold.commit();
  }

  /** What there is of a session's history, when it is of this log; else an empty one. */
  #open(row: SessionRow, inMemory: boolean): Hot {
    const identity: HistoryIdentity = { reducer: REDUCER_VERSION, logId: row.logId, low: row.low };
    const hot = (file: HistoryFile, firstBytes = 0): Hot => {
      return { fold: new HistoryFold(file), identity, firstBytes, busy: undefined };
    };
    if (this.#dir !== undefined && !inMemory) {
      const path = historyPath(this.#dir, row.num);
      const found = openFile(path, identity);
      if (found && fits(this.#log, row, found)) return hot(found, found.bytes);
      found?.close();
      const medium = createFile(this.#dir, path);
      if (medium) return hot(HistoryFile.empty(medium, identity));
    }
    return hot(HistoryFile.empty(new MemoryMedium(), identity));
  }

  #discard(num: number): void {
    this.#hot.get(num)?.fold.file.close();
    this.#hot.delete(num);
    if (this.#dir === undefined) return;
    try {
      rmSync(historyPath(this.#dir, num), { force: true, recursive: true });
    } catch {
      // Then it is folded in memory.
    }
  }

  #cool(): void {
    for (const [num, hot] of this.#hot) {
      if (this.#hot.size <= HOT_SESSIONS) break;
      if (hot.busy) continue;
      hot.fold.file.close();
      this.#hot.delete(num);
    }
  }
}

/**
 * A session's latest messages, newest first, whose JSON has about `maxBytes` together at most: what is in the log, so
 * not the text that streams just now.
 * @throws HistoryLogDamage
 */
export function recentMessages(
  session: { readonly row: SessionRow; readonly host: { readonly history: HistoryCache } },
  maxBytes: number,
): Promise<readonly HistoryMessage[]> {
  return session.host.history.recent(session.row, maxBytes);
}

function isOf(identity: HistoryIdentity, row: SessionRow): boolean {
  return identity.logId === row.logId && identity.low === row.low;
}

/** Superseded blocks are never reused. */
function isBloated({ firstBytes, fold }: Hot): boolean {
  return firstBytes > 0 && fold.file.bytes > 3 * firstBytes + SLACK_BYTES;
}

/** Is the event that it was folded up to the log's own? */
export function fits(log: EventLog, row: SessionRow, file: HistoryFile): boolean {
  const { lastSeq, lastCrc } = file.mark;
  if (lastSeq > log.lastSeq(row.num)) return false;
  if (lastSeq < row.low) return true;
  let same = false;
  log.scan(row.num, lastSeq, lastSeq, (_seq, record, length) => {
    same = recordCrc(record, length) === lastCrc;
    return false;
  });
  return same;
}

/** The entries before ordinal `end`, newest first. */
function take(
  file: HistoryFile,
  row: SessionRow,
  end: number,
  { count, maxBytes, atLeast, also }: { count: number; maxBytes: number; atLeast: number; also: readonly JsonObject[] },
): HistoryMessage[] {
  const messages: HistoryMessage[] = [];
  let bytes = 0;
  for (let ordinal = end - 1; ordinal >= 0 && messages.length < count; ordinal--) {
    bytes += file.locator(ordinal).length;
    if (bytes > maxBytes && messages.length >= atLeast) break;
    const stored = readEntry(file, ordinal);
    for (const update of also) patchEntry(stored.entry, update);
    messages.push(historyMessage(row.logId, stored));
  }
  return messages;
}
