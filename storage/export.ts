/**
 * Export and import of one session.
 *
 * Import reads the file twice: the first time it only looks, so that a file that was changed or cut off leaves nothing
 * behind; the second time it writes, the session's row last.
 */
import { createHash, randomBytes } from 'node:crypto';
import { createReadStream } from 'node:fs';
import './latin1.ts';
import { isObject } from '../protocol/json-rpc.ts';
import { LineReader } from '../protocol/line-reader.ts';
import { parseWire, stringifyWire } from '../protocol/wire-text.ts';
import { BulkSource } from './bulk-source.ts';
import { encodeRecord } from './event-codec.ts';
import type { CommitOutcome, EventLog, SessionRow } from './event-log.ts';
import {
  EXPORT_END,
  EXPORT_FORMAT,
  EXPORT_VERSION,
  type ExportedSession,
  type ExportEnd,
  type ExportHeader,
  eventLine,
  recordOfLine,
} from './export-line.ts';
import type { GroupCommit } from './group-commit.ts';
import { isSessionId } from './log-keys.ts';

const PAGE_EVENTS = 200;
const MAX_HEADER_BYTES = 1024 * 1024;
const MAX_LINE_BYTES = 256 * 1024 * 1024;
const PIECE_BYTES = 1024 * 1024;

export type ExportOutcome =
  | { readonly outcome: 'exported'; readonly events: number }
  | { readonly outcome: 'damaged'; readonly seq: number; readonly detail: string };

/** @param write takes wire text with its line ends, and is waited for */
export async function exportSession(
  log: EventLog,
  row: SessionRow,
  now: number,
  write: (wire: string) => Promise<void> | void,
): Promise<ExportOutcome> {
  const hash = createHash('sha256');
  const last = log.lastSeq(row.num);
  const events = last - row.low + 1;
  let pending = '';
  const line = (wire: string): void => {
    hash.update(`${wire}\n`, 'latin1');
    pending += `${wire}\n`;
  };
  const flush = async (): Promise<void> => {
    const text = pending;
    pending = '';
    await write(text);
  };
  line(stringifyWire(headerOf(row, now, events)));
  for (let from = row.low; from <= last; from += PAGE_EVENTS) {
    let bad: { readonly seq: number; readonly detail: string } | undefined;
    const scan = log.scan(row.num, from, Math.min(last, from + PAGE_EVENTS - 1), (seq, record, length) => {
      const made = eventLine(seq, record, length);
      if (typeof made === 'string') line(made);
      else bad = made;
      return bad === undefined;
    });
    await flush();
    if (bad) return { outcome: 'damaged', seq: bad.seq, detail: bad.detail };
    if (scan.outcome === 'gap') return { outcome: 'damaged', seq: scan.seq, detail: 'it is missing' };
  }
  const end: ExportEnd = { format: EXPORT_END, events, sha256: hash.digest('hex') };
  pending = `${stringifyWire(end)}\n`;
  await flush();
  return { outcome: 'exported', events };
}

function headerOf(row: SessionRow, now: number, events: number): ExportHeader {
  const { sessionId, cwd, additionalDirectories, createdAt, updatedAt, title, closed, bound } = row;
  const session: ExportedSession = {
    sessionId,
    cwd,
    ...(additionalDirectories && { additionalDirectories }),
    createdAt: new Date(createdAt).toISOString(),
    updatedAt: new Date(updatedAt).toISOString(),
    ...(title !== undefined && { title }),
    ...(closed && { closed }),
    bound,
  };
  const exportedAt = new Date(now).toISOString();
  return { format: EXPORT_FORMAT, version: EXPORT_VERSION, exportedAt, session, firstSeq: row.low, events };
}

/** Why a file is not imported. */
export type ImportRefusal =
  | { readonly outcome: 'refused'; readonly why: 'exists' | 'malformed' | 'newer'; readonly message: string }
  | { readonly outcome: 'not_committed'; readonly message: string };
export type ImportOutcome =
  | { readonly outcome: 'imported'; readonly row: SessionRow; readonly events: number }
  | ImportRefusal;

export interface ImportOptions {
  readonly log: EventLog;
  readonly commit: GroupCommit;
  readonly file: string;
  /** Another id for the session than the file says. */
  readonly sessionId?: string | undefined;
  /** Milliseconds since 1970. */
  readonly now: number;
}

/** An imported session is a new log: old cursors are of another one. */
export async function importSession(options: ImportOptions): Promise<ImportOutcome> {
  const { log, commit, file, now } = options;
  const looked = await readExport(file, () => undefined);
  if ('outcome' in looked) return looked;
  const { session, events } = looked;
  const sessionId = options.sessionId ?? session.sessionId;
  if (!isSessionId(sessionId)) return malformed(`${JSON.stringify(sessionId)} cannot be a session id`);
  if (log.row(sessionId)) {
    const what = log.row(sessionId)?.tombstone ? 'existed and was deleted' : 'exists';
    const message = `session ${JSON.stringify(sessionId)} ${what}`;
    return { outcome: 'refused', why: 'exists', message };
  }
  const num = log.nextNum();
  const bulk = new BulkSource(commit, num, 0);
  let failed: CommitOutcome | undefined;
  const again = await readExport(file, async (records) => {
    failed ??= failure(await bulk.run({ records }));
    return failed === undefined;
  });
  if (failed) return { outcome: 'not_committed', message: 'message' in failed ? failed.message : '' };
  if ('outcome' in again) return again;
  // Two sessions must not go on in one session of the agent.
  const taken = [...log.rows()].some((row) => !row.tombstone && row.bound.some((id) => session.bound.includes(id)));
  const records = taken ? [unbound(session.sessionId, now)] : [];
  const row = rowOf(session, { sessionId, num, bound: taken ? [] : session.bound });
  const last = failure(await bulk.run({ records, row }));
  if (last) return { outcome: 'not_committed', message: 'message' in last ? last.message : '' };
  return { outcome: 'imported', row, events: events };
}

function failure(outcome: CommitOutcome): CommitOutcome | undefined {
  return outcome.outcome === 'committed' ? undefined : outcome;
}

function rowOf(
  session: ExportedSession,
  { sessionId, num, bound }: { sessionId: string; num: number; bound: readonly string[] },
): SessionRow {
  const { cwd, additionalDirectories, title, closed } = session;
  return {
    sessionId,
    num,
    logId: randomBytes(6).toString('hex'),
    cwd,
    ...(additionalDirectories && { additionalDirectories }),
    createdAt: Date.parse(session.createdAt),
    updatedAt: Date.parse(session.updatedAt),
    ...(title !== undefined && { title }),
    ...(closed && { closed }),
    bound,
    low: 1,
  };
}

/** From here on the agent session of the events before is another session's. */
function unbound(importedFrom: string, time: number): Buffer {
  const payload = stringifyWire({ importedFrom });
  return encodeRecord({ type: 'session_forked', required: true, synthetic: true, time, payload }, { boot: '' });
}

function malformed(message: string): ImportRefusal {
  return { outcome: 'refused', why: 'malformed', message };
}

function notAnExport(): ImportRefusal {
  return malformed('it is not an export of acp-sidecar');
}

/**
 * Reads an export and checks all of it. `take` gets the records in order, a piece at a time, numbered from 1 on; it may
 * return false to stop.
 */
async function readExport(
  file: string,
  take: (records: readonly Buffer[]) => Promise<boolean> | undefined,
): Promise<ExportHeader | ImportRefusal> {
  const checker = new ExportChecker();
  const reader = new LineReader(MAX_LINE_BYTES, {
    line: (wire) => checker.line(wire),
    oversized: () => checker.tooLong(),
  });
  for await (const bytes of createReadStream(file, { highWaterMark: 256 * 1024 }) as AsyncIterable<Buffer>) {
    reader.push(bytes.latin1Slice());
    // Of a device, say, that has no line ends.
    if (reader.pendingBytes > checker.maxLineBytes) checker.tooLong();
    if (checker.problem) return checker.problem;
    if (checker.bytes >= PIECE_BYTES && (await take(checker.records())) === false) return malformed('stopped');
  }
  reader.end();
  if (checker.problem) return checker.problem;
  const rest = checker.records();
  if (rest.length > 0 && (await take(rest)) === false) return malformed('stopped');
  return checker.result();
}

/**
 *   header -> event ... event -> end -> nothing more
 */
class ExportChecker {
  problem: ImportRefusal | undefined;
  bytes = 0;
  readonly #hash = createHash('sha256');
  #header: ExportHeader | undefined;
  #ended = false;
  #seen = 0;
  #line = 0;
  #records: Buffer[] = [];

  get maxLineBytes(): number {
    return this.#header ? MAX_LINE_BYTES : MAX_HEADER_BYTES;
  }

  tooLong(): void {
    if (this.#header) this.fail(`the line after it is longer than ${MAX_LINE_BYTES} bytes`);
    else this.problem ??= notAnExport();
  }

  line(wire: string): void {
    if (this.problem) return;
    this.#line++;
    if (this.#ended) this.fail('there is more behind its end');
    else if (!this.#header) this.#begin(wire);
    else if (wire.startsWith(`{"format":"${EXPORT_END}"`)) this.#end(wire);
    else this.#event(wire, this.#header);
  }

  fail(what: string): void {
    this.problem ??= malformed(`line ${this.#line}: ${what}`);
  }

  records(): readonly Buffer[] {
    const records = this.#records;
    this.#records = [];
    this.bytes = 0;
    return records;
  }

  result(): ExportHeader | ImportRefusal {
    if (!this.#header) return malformed('it is empty');
    return this.#ended ? this.#header : malformed('it is cut off: its last line is missing');
  }

  #begin(wire: string): void {
    const value = parsed(wire);
    if (!isObject(value) || value['format'] !== EXPORT_FORMAT) {
      this.problem = notAnExport();
      return;
    }
    const { version, session, firstSeq, events } = value;
    if (typeof version === 'number' && version > EXPORT_VERSION) {
      const message = `it was written by a newer version (export version ${version}, this version knows up to ${EXPORT_VERSION})`;
      this.problem = { outcome: 'refused', why: 'newer', message };
    } else if (version !== EXPORT_VERSION || !isExportedSession(session)) this.fail('its header is not one');
    else if (!isCount(firstSeq) || firstSeq < 1 || !isCount(events)) this.fail('its header has no event numbers');
    else this.#header = value as unknown as ExportHeader;
    this.#hash.update(`${wire}\n`, 'latin1');
  }

  #event(wire: string, header: ExportHeader): void {
    const record = recordOfLine(wire, header.firstSeq + this.#seen);
    if (typeof record === 'string') {
      this.fail(record);
      return;
    }
    this.#seen++;
    this.#records.push(record);
    this.bytes += record.length;
    this.#hash.update(`${wire}\n`, 'latin1');
  }

  #end(wire: string): void {
    const value = parsed(wire);
    this.#ended = true;
    if (!isObject(value) || value['events'] !== this.#seen || this.#header?.events !== this.#seen) {
      this.fail(`it has ${this.#seen} events, not as many as it says`);
    } else if (value['sha256'] !== this.#hash.digest('hex')) this.fail('its checksum does not match: it was changed');
  }
}

function parsed(wire: string): unknown {
  try {
    return parseWire(wire);
  } catch {
    return undefined;
  }
}

function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;
}

function isTexts(value: unknown): boolean {
  return Array.isArray(value) && value.every((entry) => typeof entry === 'string');
}

function isExportedSession(value: unknown): boolean {
  if (!isObject(value)) return false;
  const { sessionId, cwd, createdAt, updatedAt, bound, additionalDirectories, title, closed } = value;
  return (
    isSessionId(sessionId) &&
    typeof cwd === 'string' &&
    [createdAt, updatedAt].every((time) => typeof time === 'string' && Date.parse(time) >= 0) &&
    isTexts(bound) &&
    (additionalDirectories === undefined || isTexts(additionalDirectories)) &&
    (title === undefined || title === null || typeof title === 'string') &&
    (closed === undefined || typeof closed === 'boolean')
  );
}
