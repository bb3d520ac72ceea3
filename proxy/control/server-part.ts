/** A running server as the control commands see it, and its control socket. */
import type { GroupCommit } from '../../storage/group-commit.ts';
import type { LmdbStore } from '../../storage/lmdb-event-log.ts';
import type { House } from '../house.ts';
import { VERSION } from '../version.ts';
import { type ControlServer, listenForControl } from './control-server.ts';
import { runStoreCommand, type ServerPart, type StoreHost } from './store-commands.ts';

export interface ControlledServer {
  readonly house: House;
  readonly log: LmdbStore;
  readonly commit: GroupCommit;
  readonly endpoints: readonly string[];
  /** Ends the server in good order. */
  readonly stop: () => void;
}

export function serveControlSocket(server: ControlledServer): Promise<ControlServer | undefined> {
  const { house, log, commit } = server;
  const host: StoreHost = { log, commit, history: house.history, now: house.now, server: serverPart(server) };
  return listenForControl(house.config.storeDir, house.logger, (request, print) =>
    runStoreCommand(host, request, print),
  );
}

function serverPart({ house, endpoints, stop, log }: ControlledServer): ServerPart {
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
    remove: (session) => new Promise((resolve) => registry.remove(session, resolve)),
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
        endpoints,
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
    stop,
  };
}
