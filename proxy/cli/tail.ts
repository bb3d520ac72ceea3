/** `acp-sidecar tail ID`: the last events of a session, then each as it is written, until a signal ends it. */
import { decodeRecord, type UnreadableRecord } from '../../storage/event-codec.ts';
import { printEvent } from './events.ts';
import { CommandError } from './exit-code.ts';
import { flushed, requireSession, withStore } from './read-store.ts';

const LAST_EVENTS = 10;
const LOOK_MS = 100;
const PAGE_EVENTS = 500;

export async function tailSession(storeDir: string, sessionId: string, json: boolean): Promise<never> {
  return withStore(storeDir, async (log) => {
    const row = requireSession(log, sessionId);
    let next = Math.max(row.low, log.lastSeq(row.num) - LAST_EVENTS + 1);
    for (;;) {
      const last = Math.min(log.lastSeq(row.num), next + PAGE_EVENTS - 1);
      let bad: UnreadableRecord | undefined;
      const scan = log.scan(row.num, next, last, (seq, record, length) => {
        const event = decodeRecord(record, length, seq);
        if ('unreadable' in event) bad = event;
        else {
          printEvent(row.logId, event, json);
          next = seq + 1;
        }
        return bad === undefined;
      });
      await flushed();
      if (bad) throw new CommandError('store_failed', `event ${bad.seq} cannot be read: ${bad.detail}`);
      if (scan.outcome === 'gap')
        throw new CommandError('failure', `event ${scan.seq} is gone: the session was deleted or pruned`);
      if (next > last) await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  });
}
