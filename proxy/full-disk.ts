/**
 * A full disk, seen from the whole house: who waits for room, whether the agent is read meanwhile, and when it is ended.
 *
 *   a session's commit finds no room -> its clients are told, the agent is held back by its pipe, retried every second
 *     -> room again: everything goes on
 *     -> --stall later: the agent is ended as in a crash; its turns' ends are written when there is room
 */
import { notificationText } from '../protocol/json-rpc.ts';
import { stringifyWire } from '../protocol/wire-text.ts';
import type { Connection } from './connection.ts';
import type { Logger } from './log.ts';
import type { Session } from './session/session.ts';

export interface FullDiskOptions {
  readonly logger: Logger;
  readonly connections: ReadonlySet<Connection>;
  readonly stallMs: number;
  readonly now: () => number;
  readonly endAgent: (why: string) => void;
}

export class FullDisk {
  readonly #options: FullDiskOptions;
  /** Sessions that wait for room, since when. */
  readonly #waiting = new Map<Session, number>();
  #timer: NodeJS.Timeout | undefined;

  constructor(options: FullDiskOptions) {
    this.#options = options;
  }

  /** Some session waits for room. */
  get full(): boolean {
    return this.#waiting.size > 0;
  }

  /** @param message why nothing could be written; undefined: it works again */
  stalled(session: Session, message: string | undefined): void {
    const { logger, connections } = this.#options;
    if (message === undefined) {
      if (!this.#waiting.delete(session)) return;
      logger.info({ sessionId: session.sessionId }, 'there is room on the disk again');
    } else {
      if (this.#waiting.has(session)) return;
      this.#waiting.set(session, this.#options.now());
      logger.warn({ sessionId: session.sessionId, message }, 'the disk is full: nothing new is taken');
    }
    const state = message === undefined ? 'ok' : 'read_only';
    for (const connection of connections) {
      if (connection.sessions.has(session)) tellLogState(connection, session, state, message);
    }
    this.#watch();
  }

  /** A cancelled turn waits for the agent's response, which stands behind what it said before. */
  mustRead(): boolean {
    for (const session of this.#waiting.keys()) if (session.turns.current?.cancelled) return true;
    return false;
  }

  #watch(): void {
    if (this.#waiting.size === 0) {
      clearTimeout(this.#timer);
      this.#timer = undefined;
      return;
    }
    this.#timer ??= setTimeout(this.#look, this.#untilDue());
  }

  /** Milliseconds until the next one has waited for `stallMs`, or for that long again. */
  #untilDue(): number {
    const { stallMs, now } = this.#options;
    const left = [...this.#waiting.values()].map((since) => since + stallMs - now()).filter((ms) => ms > 0);
    return Math.min(stallMs, ...left);
  }

  readonly #look = (): void => {
    this.#timer = undefined;
    const { stallMs, now, endAgent } = this.#options;
    const due = [...this.#waiting].filter(([, since]) => now() - since >= stallMs);
    if (due.some(([{ turns }]) => turns.busy)) endAgent(`the disk has been full for ${stallMs / 1000} s`);
    this.#watch();
  };
}

/** `_sidecar/log` to a client that opted in. */
export function tellLogState(
  connection: Connection,
  session: Session,
  state: 'ok' | 'read_only' | 'failed',
  reason: string | undefined,
): void {
  if (!connection.sidecar) return;
  connection.send(notificationText('_sidecar/log', stringifyWire({ sessionId: session.sessionId, state, reason })));
  connection.kick();
}
