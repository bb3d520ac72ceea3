/** What a server does more when it is a daemon: it answers on its control socket and ends when nobody needs it. */
import type { Server } from 'node:net';
import type { House } from '../house.ts';
import { VERSION } from '../version.ts';
import { type DaemonStatus, serveControl } from './daemon-control.ts';
import { watchIdle } from './idle-watch.ts';

export interface DutyOptions {
  /** Path of the control socket. */
  readonly control: string;
  readonly idleExitMs: number;
}

/** Takes them up; the result ends them. `stop` ends the server in good order. */
export async function takeUpDuties(options: DutyOptions, house: House, stop: () => void): Promise<() => void> {
  const status = (): DaemonStatus => {
    let turns = 0;
    let approvals = 0;
    for (const session of house.registry.open()) {
      if (session.turns.busy) turns++;
      approvals += session.approvals.pending;
    }
    return { version: VERSION, pid: process.pid, clients: house.connections.size, turns, approvals };
  };
  const server: Server = await serveControl(options.control, { status, stop });
  const forget = watchIdle(options.idleExitMs, {
    needed: () => {
      const { clients, turns, approvals } = status();
      return clients + turns + approvals > 0;
    },
    now: house.now,
    idle: () => {
      house.logger.info({ idleExitMs: options.idleExitMs }, 'nobody needs this daemon; leaving');
      stop();
    },
  });
  return () => {
    forget();
    server.close();
  };
}
