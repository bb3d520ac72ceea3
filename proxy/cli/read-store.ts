/** What the commands that read a store share: opening it beside a running server, finding a session, printing. */
import { settledId } from '../../protocol/event-id.ts';
import { decodeRecord, type StoredEvent, type UnreadableRecord } from '../../storage/event-codec.ts';
import type { EventLog, SessionRow } from '../../storage/event-log.ts';
import { openLmdbEventLogReadOnly } from '../../storage/lmdb-event-log.ts';
import { SessionTitles } from '../../storage/session-title.ts';
import { StoreOpenError, type StoreErrorKind } from '../../storage/store-error.ts';
import { CommandError, type ExitReason } from './exit-code.ts';
import { Progress, displayWidth, fitted, padded, paint } from './terminal.ts';

/** Events read between two looks at whether stdout takes more. */
const PAGE_EVENTS = 500;

const STORE_ERRORS: Readonly<Record<StoreErrorKind, { readonly reason: ExitReason; readonly hint: string }>> = {
  held: { reason: 'store_in_use', hint: 'stop that sidecar, or use another store with --store DIR' },
  newer: { reason: 'store_failed', hint: 'use the version of acp-sidecar that wrote it, or a later one' },
  damaged: { reason: 'store_failed', hint: 'restore it from a backup, or move it away to begin with an empty one' },
  missing: { reason: 'failure', hint: '`acp-sidecar serve` makes one; --store DIR names another' },
  busy: { reason: 'failure', hint: 'try again when they have ended' },
  no_space: { reason: 'failure', hint: 'free space on its disk' },
  unusable: { reason: 'store_failed', hint: 'look at its permissions and whether its disk is mounted read-only' },
  unsafe_path: { reason: 'store_failed', hint: 'name a directory of your own with --store DIR' },
};

/** A `StoreOpenError` as the end of a command; other errors unchanged. */
export function storeErrorOf(error: unknown): unknown {
  if (!(error instanceof StoreOpenError)) return error;
  const { reason, hint } = STORE_ERRORS[error.kind];
  return new CommandError(reason, error.message, hint);
}

/** Opens the store for reading, runs `read`, closes it. */
export async function withStore<T>(dir: string, read: (log: EventLog) => Promise<T>): Promise<T> {
  let log: EventLog;
  try {
    log = await openLmdbEventLogReadOnly(dir);
  } catch (error) {
    throw storeErrorOf(error);
  }
  try {
    return await read(log);
  } finally {
    await log.close();
  }
}

/** @throws CommandError when there is no such session, or it was deleted */
export function requireSession(log: EventLog, sessionId: string): SessionRow {
  const row = log.row(sessionId);
  if (!row || row.tombstone) {
    const what = row ? 'was deleted' : 'is not in this store';
    throw new CommandError(
      'failure',
      `session ${JSON.stringify(sessionId)} ${what}`,
      '`acp-sidecar sessions` lists them',
    );
  }
  return row;
}

/** What `sessions` and `show` print of a session. Times are ISO 8601. */
export function sessionJson(log: EventLog, row: SessionRow): Record<string, unknown> {
  const lastSeq = log.lastSeq(row.num);
  return {
    sessionId: row.sessionId,
    title: new SessionTitles(log).of(row),
    cwd: row.cwd,
    additionalDirectories: row.additionalDirectories,
    createdAt: new Date(row.createdAt).toISOString(),
    updatedAt: new Date(row.updatedAt).toISOString(),
    closed: row.closed ? true : undefined,
    events: lastSeq - row.low + 1,
    lastEventId: settledId(row.logId, lastSeq),
  };
}

/**
 * Every event of a session, in order, with a pause for stdout between pages.
 * @throws CommandError (store_failed) at a gap or a record that cannot be read
 */
export async function readEvents(log: EventLog, row: SessionRow, visit: (event: StoredEvent) => void): Promise<void> {
  const progress = new Progress(`reading ${row.sessionId}`);
  try {
    await readEventPages(log, row, visit, progress);
  } finally {
    progress.end();
  }
}

async function readEventPages(
  log: EventLog,
  row: SessionRow,
  visit: (event: StoredEvent) => void,
  progress: Progress,
): Promise<void> {
  const last = log.lastSeq(row.num);
  for (let from = row.low; from <= last; from += PAGE_EVENTS) {
    let bad: UnreadableRecord | undefined;
    const scan = log.scan(row.num, from, Math.min(from + PAGE_EVENTS - 1, last), (seq, record, length) => {
      const event = decodeRecord(record, length, seq);
      if ('unreadable' in event) bad = event;
      else visit(event);
      return bad === undefined;
    });
    await flushed();
    if (bad) throw damaged(row, bad.seq, bad.detail);
    if (scan.outcome === 'gap') throw damaged(row, scan.seq, 'it is missing');
    progress.step(Math.min(from + PAGE_EVENTS, last) - row.low, last - row.low + 1);
  }
}

function damaged(row: SessionRow, seq: number, detail: string): CommandError {
  const text = `session ${JSON.stringify(row.sessionId)}: event ${seq} cannot be read: ${detail}`;
  return new CommandError(
    'store_failed',
    text,
    'what was printed up to here is right; restore the store from a backup',
  );
}

let pending = '';

/** Prints a line of wire text. */
export function printWire(line: string): void {
  pending += `${line}\n`;
  if (pending.length > 65_536) {
    process.stdout.write(pending, 'latin1');
    pending = '';
  }
}

/** Prints a line for people. Control characters of agents must not reach the terminal; `colour` may add its own. */
export function printText(line: string, colour: (text: string) => string = (text) => text): void {
  // oxlint-disable-next-line no-control-regex -- they are what is looked for
  printWire(Buffer.from(colour(line.replace(/[\x00-\x1f\x7f-\x9f]+/g, ' ')), 'utf8').toString('latin1'));
}

/** Resolves when stdout has taken everything. */
export async function flushed(): Promise<void> {
  const text = pending;
  pending = '';
  await new Promise<void>((resolve) => process.stdout.write(text, 'latin1', () => resolve()));
}

/**
 * Columns as wide as their widest cell; the last one is as long as it is. `head`: the first row is a heading, and rows are
 * cut at the edge of a terminal.
 */
export function printTable(rows: readonly (readonly string[])[], head = false): void {
  const widths: number[] = [];
  for (const row of rows) {
    for (const [column, cell] of row.entries()) widths[column] = Math.max(widths[column] ?? 0, displayWidth(cell));
  }
  for (const [at, row] of rows.entries()) {
    const cells = row.map((cell, column) => (column === row.length - 1 ? cell : padded(cell, widths[column] ?? 0)));
    const text = cells.join('  ').trimEnd();
    const line = head ? fitted(text) : text;
    printText(line, (text) => (head && at === 0 ? paint(text, 'bold') : text));
  }
}
