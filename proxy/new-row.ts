/** What is known of a session when it is made, and the row that it begins with. */
import { randomBytes } from 'node:crypto';
import type { EventLog, SessionRow } from '../storage/event-log.ts';
import { isTaken } from '../storage/session-index.ts';
import type { SessionHost } from './session/session.ts';

/** What `session/new` and `session/fork` tell about the session that they make. */
export interface NewSessionFacts {
  readonly agentSessionId: string;
  readonly cwd: string;
  readonly additionalDirectories?: readonly string[] | undefined;
  readonly mcpServerNames: readonly string[];
  /** The agent's result, wire text. */
  readonly response: string;
}

/** What `session/fork` tells; the agent's part when it made the fork. */
export type ForkFacts = Omit<NewSessionFacts, 'agentSessionId' | 'response'> &
  Partial<Pick<NewSessionFacts, 'agentSessionId' | 'response'>>;

export function newRow(
  host: Pick<SessionHost, 'now' | 'log'>,
  sessionId: string,
  facts: Pick<NewSessionFacts, 'cwd' | 'additionalDirectories'>,
): SessionRow {
  const { cwd, additionalDirectories } = facts;
  const now = host.now();
  return {
    sessionId,
    num: host.log.nextNum(),
    logId: randomBytes(6).toString('hex'),
    cwd,
    ...(additionalDirectories ? { additionalDirectories } : {}),
    createdAt: now,
    updatedAt: now,
    bound: [],
    low: 1,
  };
}

/**
 * The agent's id, unless an earlier session has or had it: some agents count from 1 in each process.
 * @param open sessions that the log need not know yet, by their id
 */
export function freeId(log: EventLog, agentSessionId: string, open: ReadonlyMap<string, unknown>): string {
  let id = agentSessionId;
  while (open.has(id) || isTaken(log, id)) id = `${agentSessionId}-${randomBytes(4).toString('hex')}`;
  return id;
}
