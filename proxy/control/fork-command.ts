/** `fork`: a session that shares everything up to the end of a finished turn. */
import { randomUUID } from 'node:crypto';
import { settledId } from '../../protocol/event-id.ts';
import { stringifyWire } from '../../protocol/wire-text.ts';
import { BulkSource } from '../../storage/bulk-source.ts';
import { encodeRecord } from '../../storage/event-codec.ts';
import type { SessionRow } from '../../storage/event-log.ts';
import { CommandError } from '../cli/exit-code.ts';
import { newRow } from '../new-row.ts';
import { forkPoint } from '../session/fork-point.ts';
import { requireCommitted, type StoreHost } from './store-host.ts';

/** Resolves to the new session's id. @throws CommandError */
export async function forkCommand(host: StoreHost, row: SessionRow, atEventId: string | undefined): Promise<string> {
  const session = host.server?.open(row.sessionId);
  if (session) await new Promise<void>((resolve) => session.whenRepaired(resolve));
  if (session?.deleting) throw new CommandError('failure', `${row.sessionId} is being deleted`);
  const point = forkPoint(host.log, session?.row ?? row, host.log.lastSeq(row.num), atEventId);
  if ('refused' in point) {
    throw new CommandError(
      'failure',
      `${row.sessionId} cannot be forked there: ${point.refused}`,
      'leave --at out to fork at its last finished turn',
    );
  }
  if (!host.server) return forkAlone(host, row, point.seq);
  if (!session) throw new CommandError('store_failed', `the log of ${row.sessionId} cannot be read`);
  const made = await host.server.fork(session, point.seq);
  if ('refused' in made) throw new CommandError('failure', `not written: ${made.refused}`);
  return made.sessionId;
}

async function forkAlone(host: StoreHost, parent: SessionRow, seq: number): Promise<string> {
  const { cwd, additionalDirectories, title, num, low } = parent;
  const sessionId = randomUUID();
  const own = newRow(host, sessionId, { cwd, additionalDirectories });
  const row: SessionRow = { ...own, ...(title === undefined ? {} : { title }), low, base: { num, seq } };
  const created = stringifyWire({ sessionId, cwd, additionalDirectories, mcpServers: [] });
  const forked = stringifyWire({ parent: parent.sessionId, eventId: settledId(parent.logId, seq) });
  const records = (
    [
      ['session_created', created],
      ['session_forked', forked],
    ] as const
  ).map(([type, payload]) => encodeRecord({ type, required: true, time: host.now(), payload }, { boot: '' }));
  requireCommitted(await new BulkSource(host.commit, own.num, seq).run({ records, row }));
  return sessionId;
}
