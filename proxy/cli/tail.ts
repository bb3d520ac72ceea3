/** `acp-sidecar tail ID`: the last events of a session, then each as it is written, until a signal ends it. */
import { statSync } from 'node:fs';
import { decodeRecord, type UnreadableRecord } from '../../storage/event-codec.ts';
import { dataFile } from '../../storage/data-file.ts';
import type { EventLog, SessionRow } from '../../storage/event-log.ts';
import { printEvent } from './events.ts';
import { CommandError } from './exit-code.ts';
import { flushed, requireSession, withStore } from './read-store.ts';

const LAST_EVENTS = 10;
const LOOK_MS = 100;
const PAGE_EVENTS = 500;
/** The clock of the file system is not finer. */
const CLOCK_MS = 20;

export async function tailSession(storeDir: string, sessionId: string, json: boolean): Promise<never> {
  let next: number | undefined;
  for (;;) {
    const opened = Date.now();
    await withStore(storeDir, async (log) => {
      const row = requireSession(log, sessionId);
      const last = log.lastSeq(row.num);
      next ??= Math.max(row.low, last - LAST_EVENTS + 1);
      while (next <= last) next = await printPage(log, row, next, Math.min(last, next + PAGE_EVENTS - 1), json);
    });
    // What is read is of the moment of opening.
    do await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    while (!writtenSince(storeDir, opened));
  }
}

/** Prints events and returns the seq that comes next. */
async function printPage(log: EventLog, row: SessionRow, from: number, to: number, json: boolean): Promise<number> {
  let bad: UnreadableRecord | undefined;
  const scan = log.scan(row.num, from, to, (seq, record, length) => {
    const event = decodeRecord(record, length, seq);
    if ('unreadable' in event) bad = event;
    else printEvent(row.logId, event, json);
    return bad === undefined;
  });
  await flushed();
  if (bad) throw new CommandError('store_failed', `event ${bad.seq} cannot be read: ${bad.detail}`);
  if (scan.outcome === 'gap')
    throw new CommandError('failure', `event ${scan.seq} is gone: the session was deleted or pruned`);
  return to + 1;
}

function writtenSince(storeDir: string, time: number): boolean {
  const file = statSync(dataFile(storeDir), { throwIfNoEntry: false });
  return !file || file.mtimeMs >= time - CLOCK_MS;
}
