/** What is known of a session when it is made, and the row that it begins with. */
import { randomBytes } from 'node:crypto';
import type { SessionRow } from '../storage/event-log.ts';
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
