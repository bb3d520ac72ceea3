/** A running server as the control commands see it, and its control socket. */
import type { GroupCommit } from '../../storage/group-commit.ts';
import type { LmdbStore } from '../../storage/lmdb-event-log.ts';
import { deleteForEveryone } from '../client-methods/close.ts';
import type { House } from '../house.ts';
import { VERSION } from '../version.ts';
import { listenForControl } from './control-server.ts';
import { startKeeper } from './keeper.ts';
import { runStoreCommand } from './store-commands.ts';
import type { ServerPart, StoreHost } from './store-host.ts';

export interface ControlledServer {
  readonly house: House;
  readonly log: LmdbStore;
  readonly commit: GroupCommit;
  readonly endpoints: () => readonly string[];
  readonly listen: (path: string) => Promise<void>;
  /** Ends the server in good order. */
  readonly stop: () => void;
}

/** The control socket, and the store's keeper. Returns what ends both. */
export async function serveControlSocket(server: ControlledServer): Promise<() => Promise<void>> {
  const { house, log, commit } = server;
  const { config, logger, history, now, registry } = house;
  const host: StoreHost = { log, commit, history, now, registry, server: serverPart(server) };
  const stopKeeper = startKeeper(host, { sessions: config.retain, events: config.retainEvents }, logger);
  const socket = await listenForControl(config.storeDir, logger, (request, print) =>
    runStoreCommand(host, request, print),
  );
  return async () => {
    stopKeeper();
    await socket?.close();
  };
}

function serverPart({ house, endpoints, listen, stop, log }: ControlledServer): ServerPart {
  const { registry } = house;
  const startedAt = house.now();
  return {
    open(sessionId) {
      const opened = registry.get(sessionId);
      return opened && 'session' in opened ? opened.session : undefined;
    },
    opened(sessionId) {
      for (const session of registry.open()) if (session.sessionId === sessionId) return session;
      return undefined;
    },
    remove: (session) => new Promise((resolve) => deleteForEveryone(house, session, resolve)),
    fork: (session, seq) =>
      new Promise((resolve) => {
        const { cwd, additionalDirectories } = session.row;
        registry.fork(
          session,
          seq,
          { cwd, additionalDirectories, mcpServerNames: [] },
          ({ sessionId }) => resolve({ sessionId }),
          (refused) => resolve({ refused }),
        );
      }),
    stopping: () => house.draining,
    status() {
      let sessions = 0;
      for (const row of log.rows()) if (!row.tombstone) sessions++;
      const open = [...registry.open()];
      return {
        running: true,
        pid: process.pid,
        version: VERSION,
        store: house.config.storeDir,
        startedAt: new Date(startedAt).toISOString(),
        endpoints: endpoints(),
        agent: house.agentHost.link ? 'ready' : 'not running',
        agentPid: house.agentHost.pid,
        sessions,
        openSessions: open.length,
        runningTurns: open.filter((session) => session.turns.current !== undefined).length,
        pendingApprovals: open.reduce((sum, session) => sum + session.approvals.pending, 0),
        clients: house.connections.size,
        draining: house.draining,
      };
    },
    listen,
    stop,
  };
}
