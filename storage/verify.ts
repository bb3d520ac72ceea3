/**
 * Looks at everything in a store and names what is wrong: each row of the index, each number, each record, and the cached
 * histories against a fold of their log. Writes nothing; a turn that never ended is not damage.
 */
import { isObject } from '../protocol/json-rpc.ts';
import { parseWire } from '../protocol/wire-text.ts';
import { REDUCER_VERSION } from '../protocol/v1/transcript.ts';
import { decodeRecord, type StoredEvent } from './event-codec.ts';
import type { EventLog, SessionRow } from './event-log.ts';
import { fits } from './history-cache.ts';
import { historyPath, openFile } from './history-dir.ts';
import { HistoryFile, type HistoryIdentity } from './history-file.ts';
import { HistoryFold } from './history-fold.ts';
import { MemoryMedium } from './history-medium.ts';
import { isSessionId } from './log-keys.ts';
import { existsSync } from 'node:fs';

const PAGE_EVENTS = 500;

export interface Finding {
  readonly sessionId: string;
  readonly part: 'index' | 'log' | 'cache';
  /** The event, for the log. */
  readonly seq?: number;
  /** A sentence without its full stop. */
  readonly detail: string;
}

export interface VerifyResult {
  readonly sessions: number;
  readonly events: number;
  readonly findings: number;
}

export interface VerifyOptions {
  readonly log: EventLog;
  /** Directory of the cached histories. */
  readonly cacheDir?: string | undefined;
  /** Only this session. */
  readonly row?: SessionRow | undefined;
  readonly found: (finding: Finding) => void;
}

export async function verifyStore({ log, cacheDir, row: only, found }: VerifyOptions): Promise<VerifyResult> {
  let sessions = 0;
  let events = 0;
  let findings = 0;
  const tell = (finding: Finding): void => {
    findings++;
    found(finding);
  };
  const rows = [...log.rows()].toSorted((a, b) => a.num - b.num);
  for (const finding of indexFindings(log, rows)) {
    if (!only || finding.sessionId === only.sessionId) tell(finding);
  }
  for (const row of only ? [only] : rows) {
    if (row.tombstone) continue;
    sessions++;
    const before = findings;
    events += await verifyLog(log, row, tell);
    if (findings === before && cacheDir !== undefined) await verifyCache(log, row, cacheDir, tell);
  }
  return { sessions, events, findings };
}

function indexFindings(log: EventLog, rows: readonly SessionRow[]): Finding[] {
  const findings: Finding[] = [];
  const byNum = new Map<number, SessionRow>();
  const byLogId = new Map<string, SessionRow>();
  for (const row of rows) {
    const say = (detail: string): void => void findings.push({ sessionId: row.sessionId, part: 'index', detail });
    const shape = shapeProblem(row);
    if (shape !== undefined) {
      say(shape);
      continue;
    }
    const sameNum = byNum.get(row.num);
    const sameLog = byLogId.get(row.logId);
    if (sameNum) say(`it has number ${row.num}, which is also that of ${JSON.stringify(sameNum.sessionId)}`);
    if (sameLog) say(`it has log id ${row.logId}, which is also that of ${JSON.stringify(sameLog.sessionId)}`);
    byNum.set(row.num, row);
    byLogId.set(row.logId, row);
    if (row.tombstone) continue;
    const last = log.lastSeq(row.num);
    if (last === 0) say('it has no events');
    else if (row.low > last) say(`it begins at event ${row.low}, its last is ${last}`);
    if (!row.base) continue;
    const parent = byNum.get(row.base.num);
    if (!parent) say(`its parent, number ${row.base.num}, is not there`);
    else if (row.low <= row.base.seq && !parent.tombstone && row.base.seq > log.lastSeq(parent.num)) {
      say(`it was forked from event ${row.base.seq} of its parent, which has ${log.lastSeq(parent.num)}`);
    }
  }
  return findings;
}

/** Rows are JSON that this code wrote; damage can have made anything of them. */
function shapeProblem(row: SessionRow): string | undefined {
  const isNumber = (value: unknown, least: number): boolean =>
    Number.isSafeInteger(value) && (value as number) >= least;
  if (!isSessionId(row.sessionId)) return 'its session id is not one';
  if (!isNumber(row.num, 1)) return `its number is ${JSON.stringify(row.num)}`;
  if (typeof row.logId !== 'string' || !/^[a-z0-9]{1,32}$/.test(row.logId)) return 'its log id is not one';
  if (typeof row.cwd !== 'string') return 'it has no cwd';
  if (!isNumber(row.createdAt, 0) || !isNumber(row.updatedAt, 0)) return 'its times are not times';
  if (!isNumber(row.low, 1)) return `its first event is ${JSON.stringify(row.low)}`;
  if (!Array.isArray(row.bound)) return 'it does not say which agent sessions it was bound to';
  if (row.children !== undefined && !Array.isArray(row.children)) return 'its children are not a list';
  if (row.base && !(isNumber(row.base.num, 1) && isNumber(row.base.seq, 0))) return 'its parent is not one';
  return undefined;
}

async function verifyLog(log: EventLog, row: SessionRow, tell: (finding: Finding) => void): Promise<number> {
  const last = log.lastSeq(row.num);
  const say = (seq: number, detail: string): void => tell({ sessionId: row.sessionId, part: 'log', seq, detail });
  let good = 0;
  for (let from = row.low; from <= last; ) {
    const to = Math.min(last, from + PAGE_EVENTS - 1);
    await log.prefetch(row.num, from, to);
    const scan = log.scan(row.num, from, to, (seq, record, length) => {
      const event = decodeRecord(record, length, seq);
      const problem = 'unreadable' in event ? event.detail : contentProblem(row, event);
      if (problem === undefined) good++;
      else say(seq, problem);
      return true;
    });
    if (scan.outcome === 'gap') say(scan.seq, 'it is missing');
    from = scan.outcome === 'gap' ? scan.seq + 1 : to + 1;
    await new Promise((resolve) => setImmediate(resolve));
  }
  return good;
}

function contentProblem(row: SessionRow, event: StoredEvent): string | undefined {
  if (event.type.startsWith('unknown_')) return undefined;
  let payload: unknown;
  try {
    payload = parseWire(event.payload);
    if (event.meta !== undefined) parseWire(event.meta);
  } catch {
    return 'what it holds is not JSON';
  }
  if (!isObject(payload)) return 'what it holds is not an object';
  if (event.text && !(event.text.start <= event.text.end && event.text.end <= event.payload.length)) {
    return 'its text is not a place in it';
  }
  if (event.seq === row.low && row.low > 1 && event.type !== 'pruned')
    return 'events before it are gone without a record';
  return undefined;
}

async function verifyCache(
  log: EventLog,
  row: SessionRow,
  dir: string,
  tell: (finding: Finding) => void,
): Promise<void> {
  const identity: HistoryIdentity = { reducer: REDUCER_VERSION, logId: row.logId, low: row.low };
  // A running server may be at work on it: what is wrong must be wrong twice.
  for (let attempt = 1; ; attempt++) {
    const path = historyPath(dir, row.num);
    if (!existsSync(path)) return;
    const detail = await cacheProblem(log, row, path, identity);
    if (detail === undefined) return;
    if (attempt > 1) {
      tell({ sessionId: row.sessionId, part: 'cache', detail: `${detail}; it is made anew when it is used` });
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

async function cacheProblem(
  log: EventLog,
  row: SessionRow,
  path: string,
  identity: HistoryIdentity,
): Promise<string | undefined> {
  const cached = openFile(path, identity, true);
  if (!cached) return 'the cached history cannot be read or is of another version';
  try {
    if (!fits(log, row, cached)) return 'the cached history is of another log';
    const { lastSeq } = cached.mark;
    const fold = new HistoryFold(HistoryFile.empty(new MemoryMedium(), identity));
    for (let from = row.low; from <= lastSeq; from += PAGE_EVENTS) {
      log.scan(row.num, from, Math.min(lastSeq, from + PAGE_EVENTS - 1), (seq, record, length) => {
        return fold.fold(seq, record, length) === undefined;
      });
      if (fold.windowIsFull) fold.commit();
      await new Promise((resolve) => setImmediate(resolve));
    }
    fold.commit();
    if (cached.entries !== fold.file.entries) {
      return `the cached history has ${cached.entries} messages, its log ${fold.file.entries}`;
    }
    for (let i = 0; i < cached.entries; i++) {
      const entry = cached.read(i);
      if (!entry || !fold.file.read(i)?.equals(entry))
        return `message ${i + 1} of the cached history is not that of its log`;
    }
    return undefined;
  } finally {
    cached.close();
  }
}
