/** `acp-sidecar sessions`: the sessions of a store, newest first. */
import { stringifyWire } from '../../protocol/wire-text.ts';
import { SessionTitles } from '../../storage/session-title.ts';
import { flushed, printTable, printText, printWire, sessionJson, withStore } from './read-store.ts';

export async function listSessions(storeDir: string, json: boolean): Promise<void> {
  await withStore(storeDir, async (log) => {
    const rows = [...log.rows()]
      .filter((row) => !row.tombstone)
      .toSorted((a, b) => b.updatedAt - a.updatedAt || b.num - a.num);
    if (json) {
      printWire(stringifyWire(rows.map((row) => sessionJson(log, row))));
    } else if (rows.length === 0) {
      printText(`no sessions in ${storeDir}`);
    } else {
      const cells = rows.map((row) => [
        row.sessionId,
        new Date(row.updatedAt).toISOString(),
        String(log.lastSeq(row.num) - row.low + 1),
        row.cwd,
        new SessionTitles(log).of(row) ?? '',
      ]);
      printTable([['SESSION', 'UPDATED', 'EVENTS', 'CWD', 'TITLE'], ...cells], true);
    }
    await flushed();
  });
}
