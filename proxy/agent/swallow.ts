/**
 * What an agent replays while it restores a session is what the log has: it is neither appended nor published.
 *
 *   restoring --response--> settling --quiet--> watching --the log's next user message--> matching
 *   (all dropped)           (snapshots kept)        ^                                        |
 *                                                   +-- a mismatch releases what is held ----+
 *                                                   +-- 1 s after the last match ------------+
 *
 * What begins with the user's words of an earlier turn is a late replay. From there text is compared with the log; tool
 * updates match when their id is known; snapshots pass. What matches is held and dropped at the next match or after a
 * second; the first mismatch lets go what is held, as new.
 *
 * Some agents echo the prompt that they work on. When that says what an earlier one said, its echo and the answer may be
 * what the log has, word for word, and be new: then all of it is held, and only the user's next words of the log prove
 * a replay. Without them it is let go, at the latest after a second or at the end of the turn.
 */
import { chunkText } from '../../protocol/v1/chunk-text.ts';
import { UPDATE_KINDS, updateKindCode } from '../../protocol/v1/update-kinds.ts';
import type { IncomingUpdate } from '../session/intake.ts';
import type { ReplayFilter, Session } from '../session/session.ts';
import { type Place, speakerOf, ToldStory } from './told-story.ts';

/** After the response of the restoring request its replay has ended when nothing came for this long, */
const QUIET_MS = 50;
/** or, from an agent that pauses in between or owes a part of it, for this long, */
const LONG_QUIET_MS = 500;
/** or after this. Also: how long a replay may make itself wait for, when nothing of it has come. */
const LONGEST_MS = 1000;
/** A replay that is plainly going on is waited for longer. */
const LONGEST_REPLAY_MS = 30_000;
const HELD_MS = 1000;
/** How long after a restore a late replay is still known as one. */
const WATCH_MS = 60_000;

/** What the agent is now, not what it was: passed on when the replay is over. Mode and options are set again anyway. */
const PASSED_ON = new Set<number>([UPDATE_KINDS.available_commands_update, UPDATE_KINDS.session_info_update]);
const SNAPSHOTS = new Set<number>([...PASSED_ON, UPDATE_KINDS.current_mode_update, UPDATE_KINDS.config_option_update]);

interface Held {
  readonly incoming: IncomingUpdate;
  /** The log has it; else it only stands where a replay may be. */
  readonly proven: boolean;
}

export class Swallow implements ReplayFilter {
  readonly #session: Session;
  readonly #tools: ReadonlySet<string>;
  /** Messages of the user that the log has. */
  readonly #told: number;
  readonly #snapshots = new Map<number, IncomingUpdate>();
  #phase: 'restoring' | 'settling' | 'watching' | 'matching' | 'releasing' = 'restoring';
  #lastHeard: number;
  /** Between two updates of the replay. */
  #longestPauseMs = 0;
  #userMessages = 0;
  #inUserMessage = false;
  #story: ToldStory | undefined;
  #at: Place | undefined;
  #held: Held[] = [];
  /** What is held may be an echo of the running prompt with its answer. */
  #doubtful = false;
  #heldTimer: NodeJS.Timeout | undefined;
  #watchTimer: NodeJS.Timeout | undefined;

  constructor(session: Session) {
    this.#session = session;
    this.#tools = new Set(session.state.tools.keys());
    this.#told = session.state.userMessages;
    this.#lastHeard = session.host.now();
  }

  get holds(): boolean {
    return this.#phase === 'restoring' || this.#phase === 'settling' || this.#phase === 'matching';
  }

  /** Milliseconds since 1970 of the last update. */
  get lastHeard(): number {
    return this.#lastHeard;
  }

  /** Messages of the user that were replayed so far. */
  get userMessages(): number {
    return this.#userMessages;
  }

  admits(incoming: IncomingUpdate): boolean {
    const kind = updateKindCode(incoming.value['sessionUpdate']);
    switch (this.#phase) {
      case 'restoring':
      case 'settling':
        this.#swallow(incoming, kind);
        return false;
      case 'watching':
        return kind !== UPDATE_KINDS.user_message_chunk || !this.#begins(incoming);
      case 'matching':
        return this.#matches(incoming, kind);
      case 'releasing':
        return true;
      default:
        return true;
    }
  }

  /** The restoring request was answered: resolves when its replay is over, as far as one can tell by waiting. */
  async answered(expectsReplay: boolean): Promise<void> {
    this.#phase = 'settling';
    const { now } = this.#session.host;
    const since = now();
    for (;;) {
      const left = this.#replayOver(since, expectsReplay) - now();
      if (left <= 0) return;
      await new Promise((resolve) => setTimeout(resolve, Math.min(left, QUIET_MS)));
    }
  }

  /** When it is, if nothing more comes. */
  #replayOver(since: number, expectsReplay: boolean): number {
    if (expectsReplay && this.#userMessages === 0) return since + LONGEST_MS;
    // An agent that replays less than the log has does not get here for long: it falls silent.
    const owes = expectsReplay && (this.#userMessages < this.#told || this.#inUserMessage);
    const pause = Math.min(Math.max(QUIET_MS, 2 * this.#longestPauseMs), LONG_QUIET_MS);
    const quiet = Math.max(this.#lastHeard, since) + (owes ? LONG_QUIET_MS : pause);
    return Math.min(quiet, since + (owes ? LONGEST_REPLAY_MS : LONGEST_MS));
  }

  /** The session lives: from now on only a late replay is kept back. */
  watch(): void {
    if (this.#phase !== 'settling' && this.#phase !== 'restoring') return;
    this.#phase = 'watching';
    for (const snapshot of this.#snapshots.values()) this.#session.intake.update(snapshot);
    this.#watchTimer = setTimeout(() => {
      if (this.#session.replay !== this) return;
      this.settle();
      this.#session.replay = undefined;
    }, WATCH_MS).unref();
  }

  promptSent(): void {
    if (this.#phase === 'matching') this.#held = [];
  }

  settle(): void {
    if (this.#phase !== 'matching') return;
    this.#release((held) => !held.proven);
  }

  end(): void {
    clearTimeout(this.#heldTimer);
    clearTimeout(this.#watchTimer);
    this.settle();
  }

  #swallow(incoming: IncomingUpdate, kind: number): void {
    const now = this.#session.host.now();
    if (this.#userMessages > 0) this.#longestPauseMs = Math.max(this.#longestPauseMs, now - this.#lastHeard);
    this.#lastHeard = now;
    if (PASSED_ON.has(kind) && incoming.childSessionId === undefined) this.#snapshots.set(kind, incoming);
    const user = kind === UPDATE_KINDS.user_message_chunk && incoming.childSessionId === undefined;
    if (user && !this.#inUserMessage) this.#userMessages++;
    this.#inUserMessage = user;
  }

  /** Is it the beginning of a late replay: the log's next message of the user, or its first? */
  #begins(incoming: IncomingUpdate): boolean {
    const text = chunkText(incoming.value);
    if (text === undefined || text === '' || incoming.childSessionId !== undefined) return false;
    const { log, order, row } = this.#session;
    this.#story ??= new ToldStory();
    // An agent that replays late may have what was said since.
    this.#story.read(log, order.num, row.low, order.head);
    for (const n of [this.#userMessages, 0]) {
      const start = this.#story.userMessage(n);
      const next = start && this.#story.follow(start, 'user', text);
      if (!next) continue;
      this.#phase = 'matching';
      this.#at = next;
      this.#doubtful = this.#session.turns.mayEcho(text);
      this.#hold(incoming, true);
      return true;
    }
    return false;
  }

  #matches(incoming: IncomingUpdate, kind: number): boolean {
    if (incoming.childSessionId !== undefined || SNAPSHOTS.has(kind)) return true;
    const speaker = speakerOf(kind);
    const text = speaker && chunkText(incoming.value);
    if (speaker && text !== undefined && this.#story && this.#at) {
      const next = this.#story.follow(this.#at, speaker, text);
      if (next) {
        if (speaker === 'user' && next.passage > this.#at.passage) this.#doubtful = false;
        this.#at = next;
        this.#hold(incoming, true);
        return false;
      }
      if (speaker === 'user' && !this.#doubtful) {
        const held = this.#held;
        this.#held = [];
        // It has come to the prompt that it is working on.
        if (this.#session.turns.mayEcho(text)) this.#release(() => false);
        else if (this.#begins(incoming)) return false;
        else this.#held = held;
      }
    } else if (kind === UPDATE_KINDS.agent_thought_chunk) {
      this.#hold(incoming, false);
      return false;
    } else if (kind === UPDATE_KINDS.tool_call || kind === UPDATE_KINDS.tool_call_update) {
      const { toolCallId } = incoming.value;
      if (typeof toolCallId === 'string' && this.#tools.has(toolCallId)) {
        this.#hold(incoming, true);
        return false;
      }
    } else if (this.#story?.has(kind, incoming.wire)) {
      this.#hold(incoming, true);
      return false;
    }
    this.#release(() => true);
    return true;
  }

  /** What the log has proves that what was held before it was a replay, too. */
  #hold(incoming: IncomingUpdate, proven: boolean): void {
    if (this.#doubtful) {
      if (this.#held.length === 0) {
        clearTimeout(this.#heldTimer);
        this.#heldTimer = setTimeout(() => this.settle(), HELD_MS).unref();
      }
      this.#held.push({ incoming, proven: false });
      return;
    }
    if (proven) {
      this.#held = [];
      clearTimeout(this.#heldTimer);
      this.#heldTimer = setTimeout(() => this.settle(), HELD_MS).unref();
    }
    this.#held.push({ incoming, proven });
  }

  #release(which: (held: Held) => boolean): void {
    clearTimeout(this.#heldTimer);
    const held = this.#held;
    this.#held = [];
    this.#doubtful = false;
    this.#phase = 'releasing';
    for (const entry of held) if (which(entry)) this.#session.intake.update(entry.incoming);
    this.#phase = 'watching';
  }
}
