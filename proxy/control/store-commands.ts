/**
 * The commands that write to a store, the same in a running server and in a process that has the store for itself. The
 * server is asked for its sessions first: what is open is changed through its own order.
 */
import { statSync } from 'node:fs';
import { backupStore } from '../../storage/backup.ts';
import { BulkSource } from '../../storage/bulk-source.ts';
import { encodeRecord } from '../../storage/event-codec.ts';
import { importSession } from '../../storage/export.ts';
import { REPAIR_REASON, repairedView } from '../../storage/repair.ts';
import { CommandError } from '../cli/exit-code.ts';
import { eventJson } from '../event-json.ts';
import { foldLog } from '../session/open-session.ts';
import type { ControlRequest, Print } from './control-protocol.ts';
import { removeSessions, requireCommitted, rowOf, type StoreHost } from './store-host.ts';
import { isNewer } from '../version.ts';

export async function runStoreCommand(host: StoreHost, request: ControlRequest, print: Print): Promise<void> {
  switch (request.command) {
    case 'status':
      print(JSON.stringify(host.server?.status() ?? {}));
      return;
    case 'stop':
      host.server?.stop();
      return;
    case 'retire': {
      const { version, runningTurns, pendingApprovals } = host.server?.status() ?? {};
      const older = typeof version === 'string' && isNewer(request.version, version);
      if (older && runningTurns === 0 && pendingApprovals === 0) host.server?.stop();
      return;
    }
    case 'listen':
      await host.server?.listen(request.path);
      return;
    case 'opened':
      print(JSON.stringify(host.server?.opened(request.sessionId) !== undefined));
      return;
    case 'import':
      return importCommand(host, request.file, request.sessionId, print);
    case 'delete':
      return deleteCommand(host, request.sessionId, print);
    case 'repair':
      return repairCommand(host, request.sessionId, request.json, print);
    case 'backup': {
      const outcome = await backupStore(host.log, request.dir);
      if (outcome.outcome === 'refused') throw new CommandError('failure', outcome.message, 'name a new directory');
      print(request.dir);
      return;
    }
    case 'fork': {
      const { forkCommand } = await import('./fork-command.ts');
      print(await forkCommand(host, rowOf(host, request.sessionId), request.atEventId));
      return;
    }
    case 'prune':
      return pruneCommand(host, request, print);
    default:
      throw new CommandError(
        'failure',
        `the server does not know ${JSON.stringify(request)}`,
        'it is of another version',
      );
  }
}

async function importCommand(
  host: StoreHost,
  file: string,
  sessionId: string | undefined,
  print: Print,
): Promise<void> {
  const { log, commit, now } = host;
  let outcome: Awaited<ReturnType<typeof importSession>>;
  try {
    // It is read twice, and reading a pipe could take for ever.
    if (!statSync(file).isFile()) throw new CommandError('failure', `${file} is no file`, 'write the export to a file');
    outcome = await importSession({ log, commit, file, sessionId, now: now() });
  } catch (error) {
    if (error instanceof Error && 'syscall' in error) throw new CommandError('failure', error.message);
    throw error;
  }
  if (outcome.outcome === 'not_committed') {
    throw new CommandError('failure', `not written: ${outcome.message}`, 'free space on its disk and try again');
  }
  if (outcome.outcome === 'refused') {
    if (outcome.why === 'exists') throw new CommandError('failure', outcome.message, 'give it another id with --as ID');
    throw new CommandError(outcome.why === 'newer' ? 'store_failed' : 'failure', `${file}: ${outcome.message}`);
  }
  print(outcome.row.sessionId);
}

async function deleteCommand(host: StoreHost, sessionId: string, print: Print): Promise<void> {
  await removeSessions(host, [rowOf(host, sessionId)]);
  print(sessionId);
}

async function pruneCommand(
  host: StoreHost,
  request: ControlRequest & { command: 'prune' },
  print: Print,
): Promise<void> {
  const { sessionId, dryRun, json, retention } = request;
  const row = sessionId === undefined ? undefined : rowOf(host, sessionId);
  // Loaded when it is needed: most servers never prune.
  const { prune, pruneLine } = await import('./prune-command.ts');
  const stopped = (): boolean => host.server?.stopping() ?? false;
  await prune(host, { retention, row, dryRun, stopped }, (pruned) => print(pruneLine(pruned, dryRun, json)));
  if (stopped())
    throw new CommandError('failure', 'the server is stopping; not everything was looked at', 'run it again');
}

async function repairCommand(host: StoreHost, sessionId: string, json: boolean, print: Print): Promise<void> {
  const row = rowOf(host, sessionId);
  if (host.server?.opened(sessionId)) {
    if (!json) print(`session ${sessionId} is in use; there is nothing to repair`);
    return;
  }
  const folded = foldLog(host.log, row);
  if ('error' in folded) {
    throw new CommandError('store_failed', folded.error.message, 'restore the store from a backup');
  }
  const events = repairedView(folded.state, folded.head, REPAIR_REASON, host.now());
  const session = events.length > 0 ? host.server?.open(sessionId) : undefined;
  if (session) await new Promise<void>((resolve) => session.whenRepaired(resolve));
  else {
    const records = events.map(({ seq: _seq, boot, kind, ...event }) => encodeRecord(event, { boot, kind }));
    requireCommitted(await new BulkSource(host.commit, row.num, folded.head).run({ records }));
  }
  if (json) for (const event of events) print(Buffer.from(eventJson(row.logId, event), 'latin1').toString());
  else print(events.length === 0 ? 'nothing to repair' : `${events.length} events added: ${summary(events)}`);
}

function summary(events: readonly { readonly type: string }[]): string {
  const counts = new Map<string, number>();
  for (const { type } of events) counts.set(type, (counts.get(type) ?? 0) + 1);
  return [...counts].map(([type, count]) => `${count} ${type}`).join(', ');
}
