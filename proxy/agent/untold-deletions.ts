/**
 * Deletions of sessions that the agent has not heard of yet: it was down, or not initialised, or died of it.
 *
 *   deleted --tombstone says `untold`, in one commit--> told --answered, whatever it says--> the mark goes
 *                                    ^                    |
 *                                    +-- nothing came ----+   again in a later life, in a few at most
 *
 * An id that another session has now is never told: some agents count from 1 in each process.
 */
import { stringifyWire } from '../../protocol/wire-text.ts';
import { BulkSource } from '../../storage/bulk-source.ts';
import type { EventLog, SessionRow } from '../../storage/event-log.ts';
import type { GroupCommit } from '../../storage/group-commit.ts';
import { untoldMark } from '../../storage/session-index.ts';
import type { Logger } from '../log.ts';
import type { AgentHost } from './agent-host.ts';
import type { AgentLink } from './agent-link.ts';
import { isAuthRequired, requestUnlessSilent } from './binding.ts';
import { agentCan } from './leave-agent.ts';

/** An agent may die of being told, or not know how to answer: lives in which a deletion is told again. */
const MAX_LIVES = 5;
/** Sessions that one life of the agent is told of at its beginning; the others are told to the next. */
const MAX_AT_ONCE = 1000;

export interface UntoldOptions {
  readonly agentHost: Pick<AgentHost, 'initialized' | 'storedAnswer'>;
  readonly log: EventLog;
  readonly commit: GroupCommit;
  readonly logger: Logger;
  /** Whether something lives under this id in the agent that runs. */
  readonly live: (agentSessionId: string) => boolean;
}

export class UntoldDeletions {
  readonly #options: UntoldOptions;
  readonly #telling = new Set<number>();

  constructor(options: UntoldOptions) {
    this.#options = options;
  }

  /** What the tombstone is to say; nothing of an agent that is known not to delete. */
  markOf(row: SessionRow): Pick<SessionRow, 'untold'> {
    const { agentHost } = this.#options;
    return agentHost.storedAnswer === undefined || agentCan(agentHost, 'delete') ? untoldMark(row) : {};
  }

  /** A tombstone is durable: the agent is told now, if it can be. */
  deleted(sessionId: string): void {
    const link = this.#listener();
    const row = this.#options.log.row(sessionId);
    if (link && row?.untold !== undefined) this.#guarded(this.#tell(link, row));
  }

  /** A life of the agent has begun: it is told of what the ones before were not, one after the other. */
  agentReady(): void {
    this.#guarded(this.#tellAll());
  }

  async #tellAll(): Promise<void> {
    const { log } = this.#options;
    const link = this.#listener();
    if (!link) return;
    const untold = [...log.rows()].filter((row) => row.tombstone && row.untold !== undefined).slice(0, MAX_AT_ONCE);
    for (const row of untold) {
      if (this.#listener() !== link) return;
      const lives = (row.untold ?? 0) + 1;
      // Counted before it is told, for the sidecar may end with the agent.
      if (!(await this.#write(row, lives > MAX_LIVES ? undefined : lives))) return;
      if (lives <= MAX_LIVES && !(await this.#tell(link, row))) return;
    }
  }

  #guarded(telling: Promise<unknown>): void {
    telling.catch((error: unknown) =>
      this.#options.logger.error({ err: error }, 'the agent was not told of a deletion'),
    );
  }

  #listener(): AgentLink | undefined {
    const { agentHost } = this.#options;
    return agentCan(agentHost, 'delete') ? agentHost.initialized : undefined;
  }

  /** False when there is no use in telling this life of the agent more. */
  async #tell(link: AgentLink, row: SessionRow): Promise<boolean> {
    if (this.#telling.has(row.num)) return true;
    this.#telling.add(row.num);
    try {
      for (const sessionId of row.bound) {
        if (this.#isUsed(sessionId)) continue;
        const answer = await requestUnlessSilent(link, 'session/delete', stringifyWire({ sessionId }), () => 0);
        if (answer.outcome === 'lost') return false;
        const { error, wire } = answer.message;
        // It has not listened: nobody is logged in yet.
        if (error && isAuthRequired(wire.slice(error.valueStart, error.valueEnd))) return false;
      }
      return await this.#write(row, undefined);
    } finally {
      this.#telling.delete(row.num);
    }
  }

  #isUsed(agentSessionId: string): boolean {
    if (this.#options.live(agentSessionId)) return true;
    for (const { tombstone, bound } of this.#options.log.rows()) {
      if (!tombstone && bound.includes(agentSessionId)) return true;
    }
    return false;
  }

  async #write({ sessionId, num }: SessionRow, untold: number | undefined): Promise<boolean> {
    const { log, commit, logger } = this.#options;
    const row = log.row(sessionId);
    if (row?.num !== num || !row.tombstone) return true;
    const { untold: _before, ...rest } = row;
    const changed: SessionRow = untold === undefined ? rest : { ...rest, untold };
    const { outcome } = await new BulkSource(commit, num, log.lastSeq(num)).run({ row: changed });
    if (outcome !== 'committed') logger.warn({ sessionId }, 'what the agent was told of a deletion could not be noted');
    return outcome === 'committed';
  }
}
