/**
 * Turns: from an accepted prompt to its stop reason, one at a time.
 *
 *   prompt -> queued (turn_queued) -> binding -> started (turn_started, durable) -> forwarded -> ended (turn_ended)
 *               |                        |           |                               |
 *               +--------- cancelled ----+-----------+  nothing reached the agent    +-- cancel goes to the agent
 *
 * A prompt is forwarded after its `turn_started` is durable and answered after its `turn_ended` is. `promptId` makes it
 * idempotent: sent again it joins the turn or gets the recorded end.
 */
import { type InterruptedCode, type RpcError, rpcError } from '../../protocol/error.ts';
import { errorText, type JsonObject } from '../../protocol/json-rpc.ts';
import { chunkText } from '../../protocol/v1/chunk-text.ts';
import { stringifyWire } from '../../protocol/wire-text.ts';
import { MAX_QUEUED_PROMPTS, boundHit } from '../bounds.ts';
import type { AgentAnswer, BoundOutcome } from './agent-port.ts';
import type { Client } from './client.ts';
import { type PromptInput, primedParams, promptText, turnFacts } from './prompt-input.ts';
import { promptResponse, recordedEnd } from './recorded-end.ts';
import { agentParams } from './public-params.ts';
import { QuietWait } from './quiet-wait.ts';
import type { Session } from './session.ts';
import { newTurn, type Requester, type Turn } from './turn.ts';

/** An agent that does not answer a cancelled prompt is restarted. */
const CANCEL_MS = 60_000;

export class Turns {
  readonly #session: Session;
  #current: Turn | undefined;
  readonly #queue: Turn[] = [];
  #idle: (() => void)[] = [];
  /** A queued prompt waits for the end of what the agent says after the stop reason before it. */
  readonly #quiet: QuietWait;
  #cancelTimer: NodeJS.Timeout | undefined;

  constructor(session: Session) {
    this.#session = session;
    this.#quiet = new QuietWait(session.host.now);
  }

  /** The turn that is with the agent or about to be. */
  get current(): { readonly turnId: string; readonly client: Client; readonly cancelled: boolean } | undefined {
    return this.#current && this.#current.phase !== 'queued' ? this.#current : undefined;
  }

  get busy(): boolean {
    return this.#current !== undefined || this.#queue.length > 0;
  }

  /** The running turn as `session/load` tells it. */
  get status(): { turnId: string; state: 'queued' | 'running' } | undefined {
    if (!this.#current) return undefined;
    return { turnId: this.#current.turnId, state: this.#current.phase === 'queued' ? 'queued' : 'running' };
  }

  /** Runs when no turn runs and none waits. */
  whenIdle(run: () => void): void {
    if (this.busy) this.#idle.push(run);
    else run();
  }

  prompt(input: PromptInput): void {
    const { client, requestId, promptId } = input;
    if (promptId !== undefined && this.#repeated(input, promptId)) return;
    if (this.#session.full) {
      this.#fail({ client, requestId }, rpcError('not_persisted'));
      return;
    }
    const busy = this.busy;
    if (busy && (this.#session.host.config.onBusy === 'reject' || this.#queueIsFull(input))) {
      this.#fail({ client, requestId }, rpcError('session_busy'));
      return;
    }
    const turn = newTurn(input, this.#session.host.newId());
    this.#session.record(
      {
        type: 'turn_queued',
        required: true,
        turnId: turn.turnId,
        // The prompt itself is in `turn_started`; while it only waits, this is where it is kept.
        payload: busy ? `{"facts":${turnFacts(turn)},"prompt":${turn.prompt}}` : `{"facts":${turnFacts(turn)}}`,
      },
      {
        settled: (seq) => {
          turn.queuedSeq = seq;
        },
        refused: () => this.#refused(turn),
      },
    );
    this.#session.clients.get(client)?.ownTurns.add(turn.turnId);
    if (busy) this.#queue.push(turn);
    else this.#begin(turn);
  }

  /** By number, or because together they are larger than one message may be. */
  #queueIsFull(input: PromptInput): boolean {
    let bytes = input.params.length;
    for (const { params } of this.#queue) bytes += params.length;
    const { maxMessageBytes } = this.#session.host.config;
    const full = this.#queue.length >= MAX_QUEUED_PROMPTS || (this.#queue.length > 0 && bytes > maxMessageBytes);
    if (full) boundHit('queued_prompts');
    return full;
  }

  /** `session/cancel`: the running turn and every queued prompt. */
  cancel(): void {
    for (const turn of this.#queue.splice(0)) this.#endCancelled(turn);
    this.#session.approvals.cancelAll();
    if (this.#current) this.#cancelTurn(this.#current);
  }

  /** `$/cancel_request` of a prompt: that turn only. False when the request is not a prompt of this session. */
  cancelRequest(client: Client, requestId: string): boolean {
    const mine = (turn: Turn): boolean =>
      turn.requesters.some((entry) => entry.client === client && entry.requestId === requestId);
    const at = this.#queue.findIndex(mine);
    if (at >= 0) {
      for (const turn of this.#queue.splice(at, 1)) this.#endCancelled(turn);
      return true;
    }
    const turn = this.#current;
    if (!turn || !mine(turn)) return false;
    this.#cancelTurn(turn);
    return true;
  }

  /** Who waits for the prompt that the agent knows by this id. */
  requesterOf(agentRequestId: string): { readonly client: Client; readonly requestId: string } | undefined {
    return this.#current?.agentRequestId === agentRequestId ? this.#current.requesters.at(-1) : undefined;
  }

  /** True when an update is the agent's echo of the running prompt, which the log has as `turn_started`. */
  isEcho(update: JsonObject): boolean {
    const turn = this.#current;
    const text = chunkText(update);
    if (!turn || text === undefined || !this.mayEcho(text)) return false;
    turn.echo = turn.echo.slice(text.length);
    return true;
  }

  /** The agent may say this as the next piece of an echo. */
  mayEcho(text: string): boolean {
    return text !== '' && this.#current?.echo.startsWith(text) === true;
  }

  agentExited(message: string): void {
    const turn = this.#current;
    if (!turn || turn.phase === 'queued' || turn.phase === 'ending') return;
    // A turn that is still binding goes on with the outcome of the bind.
    if (turn.phase === 'binding') return;
    this.#interrupt(turn, turn.phase === 'running' ? 'PROMPT_OUTCOME_UNKNOWN' : 'PROMPT_NOT_SENT', message);
  }

  /** The sidecar is stopping: what only waits is told that it was not sent. */
  stopQueued(message: string): void {
    for (const turn of this.#queue.splice(0)) this.#interrupt(turn, 'PROMPT_NOT_SENT', message, 'stopping');
  }

  close(): void {
    this.#quiet.end();
    clearTimeout(this.#cancelTimer);
  }

  #begin(turn: Turn): void {
    this.#current = turn;
    turn.phase = 'binding';
    if (this.#session.full) {
      this.#refused(turn);
      return;
    }
    const bound = this.#session.host.bind(this.#session);
    if ('outcome' in bound) this.#start(turn, bound);
    else void bound.then((outcome) => this.#start(turn, outcome));
  }

  #start(turn: Turn, bound: BoundOutcome): void {
    if (turn.phase !== 'binding') return;
    if (bound.outcome !== 'bound') {
      const error = bound.outcome === 'agent_error' ? bound.error : stringifyWire(bound.error);
      this.#end(turn, `{"outcome":"error","error":${error}}`, (id) => errorText(id, error));
      return;
    }
    turn.phase = 'starting';
    turn.agent = bound.agent;
    turn.echo = promptText(turn.prompt);
    this.#session.record(
      {
        type: 'turn_started',
        required: true,
        turnId: turn.turnId,
        payload: `{"facts":${turnFacts(turn)},"prompt":${turn.prompt}}`,
      },
      { settled: () => this.#forward(turn), refused: () => this.#refused(turn) },
    );
  }

  #forward(turn: Turn): void {
    if (turn.phase !== 'starting') return;
    if (turn.cancelled) {
      this.#endCancelled(turn);
      return;
    }
    turn.phase = 'running';
    this.#session.replay?.promptSent();
    const params = this.#primed(turn, agentParams(this.#session, turn.params));
    turn.agentRequestId = turn.agent?.request('session/prompt', params, (answer) => this.#answered(turn, answer));
  }

  /** The earlier conversation goes before the first prompt of an agent session that does not have it. */
  #primed(turn: Turn, params: string): string {
    const { primer } = this.#session;
    if (primer === undefined) return params;
    this.#session.primer = undefined;
    turn.echo = primer + turn.echo;
    return primedParams(params, primer);
  }

  #answered(turn: Turn, answer: AgentAnswer): void {
    if (turn.phase !== 'running') return;
    this.#session.replay?.settle();
    if (answer.outcome === 'lost') {
      this.#interrupt(turn, 'PROMPT_OUTCOME_UNKNOWN', answer.message);
      return;
    }
    if (turn.cancelled && this.#session.order.stalled) this.#notRecorded(turn);
    const { result, error, wire } = answer.message;
    if (error) {
      const text = wire.slice(error.valueStart, error.valueEnd);
      this.#end(turn, `{"outcome":"error","error":${text}}`, (id) => errorText(id, text));
      return;
    }
    const text = result ? wire.slice(result.valueStart, result.valueEnd) : '{}';
    this.#end(turn, `{"outcome":"response","response":${text}}`, (id, seq) =>
      promptResponse(this.#session, id, text, turn.turnId, seq),
    );
  }

  #cancelTurn(turn: Turn): void {
    turn.cancelled = true;
    this.#session.approvals.cancelAll();
    if (turn.phase === 'binding') this.#endCancelled(turn);
    if (turn.phase !== 'running') return;
    // The agent has one prompt of a session at a time, and this is the cancel that every agent knows.
    turn.agent?.notify('session/cancel', stringifyWire({ sessionId: this.#session.agentSessionId }));
    // On a full disk the agent may not be read: now it is, for its response.
    this.#session.host.touched(this.#session);
    this.#cancelTimer ??= setTimeout(() => turn.agent?.restart('it did not answer a cancelled prompt'), CANCEL_MS);
  }

  #endCancelled(turn: Turn): void {
    const result = '{"stopReason":"cancelled"}';
    this.#end(
      turn,
      `{"outcome":"response","response":${result}}`,
      (id, seq) => promptResponse(this.#session, id, result, turn.turnId, seq),
      true,
    );
  }

  #interrupt(turn: Turn, code: InterruptedCode, message: string, reason?: 'stopping'): void {
    if (code === 'PROMPT_OUTCOME_UNKNOWN') {
      if (turn === this.#current) this.#session.closeRunning(message);
      if (this.#session.order.stalled) this.#notRecorded(turn);
    }
    const error = rpcError('interrupted', message, { code, turnId: turn.turnId, reason });
    const payload = stringifyWire({ outcome: 'interrupted', code, message });
    this.#end(turn, payload, (id) => errorText(id, stringifyWire(error)), true);
  }

  /** It ran, and its end cannot be written now: whoever waits is not kept waiting for room on the disk. */
  #notRecorded(turn: Turn): void {
    for (const requester of turn.requesters.splice(0)) {
      this.#fail(requester, rpcError('not_recorded', undefined, { turnId: turn.turnId }));
      requester.client.kick();
    }
  }

  /** Writes the end, answers when it is durable, and goes on. */
  #end(turn: Turn, payload: string, answer: (id: string, seq: number) => string, synthetic = false): void {
    turn.phase = 'ending';
    clearTimeout(this.#cancelTimer);
    this.#cancelTimer = undefined;
    if (turn === this.#current) this.#session.intake.flush();
    const { turnId } = turn;
    this.#session.record(
      { type: 'turn_ended', required: true, turnId, payload, synthetic },
      { settled: (seq) => this.#settle(turn, seq, answer) },
    );
    this.#session.setRow({ updatedAt: this.#session.host.now() });
    if (turn === this.#current) this.#current = undefined;
    if (!this.#current) this.#next();
  }

  #settle(turn: Turn, seq: number, answer: (id: string, seq: number) => string): void {
    if (turn.promptId !== undefined) {
      const known = this.#session.state.prompts.get(turn.promptId);
      if (known?.turnId === turn.turnId) known.ended = seq;
    }
    for (const { client, requestId } of turn.requesters.splice(0)) this.#owe(client, seq, answer(requestId, seq));
  }

  #owe(client: Client, seq: number, wire: string): void {
    const attachment = this.#session.clients.get(client);
    if (attachment) attachment.owe({ seq, offset: 0, what: 'answer', wire });
    else client.send(wire);
    client.kick();
  }

  #next(): void {
    if (!this.busy) for (const run of this.#idle.splice(0)) run();
    if (this.#queue.length === 0 || this.#quiet.waiting) return;
    this.#quiet.begin(() => {
      if (this.#current) return;
      const turn = this.#queue.shift();
      if (turn) this.#begin(turn);
    });
  }

  /** Late updates put the next prompt off. */
  updateSeen(): void {
    this.#quiet.heard();
  }

  /** The disk is full and the agent has not seen the prompt: it is given up, safely. */
  #refused(turn: Turn): void {
    if (turn.phase === 'ending') return;
    for (const requester of turn.requesters.splice(0)) this.#fail(requester, rpcError('not_persisted'));
    // Its turn_started goes as well.
    if (turn.phase === 'starting') this.#session.state.userMessages--;
    if (turn.queuedSeq !== undefined) {
      // Its turn_queued is in the log: the end is written when there is room again.
      this.#interrupt(turn, 'PROMPT_NOT_SENT', 'it could not be stored');
      return;
    }
    turn.phase = 'ending';
    this.#session.state.openTurns.delete(turn.turnId);
    if (turn.promptId !== undefined) this.#session.state.prompts.delete(turn.promptId);
    const at = this.#queue.indexOf(turn);
    if (at >= 0) this.#queue.splice(at, 1);
    if (this.#current === turn) this.#current = undefined;
    if (!this.#current) this.#next();
  }

  #fail(to: Requester, error: RpcError): void {
    to.client.send(errorText(to.requestId, stringifyWire(error)));
  }

  /** A promptId that is known: join its turn or answer from the log. True when that was done. */
  #repeated(input: PromptInput, promptId: string): boolean {
    const known = this.#session.state.prompts.get(promptId);
    if (!known) return false;
    const { client, requestId } = input;
    if (known.digest !== input.digest) {
      const detail = 'this promptId was used for another prompt in this session';
      this.#fail({ client, requestId }, rpcError('invalid_params', detail));
      return true;
    }
    const running = [this.#current, ...this.#queue].find((turn) => turn?.turnId === known.turnId);
    if (running) {
      // Every request that was sent on a connection that is still open gets its answer.
      const open = running.requesters.filter((before) => before.client.open);
      running.requesters = [...open, { client, requestId }];
      return true;
    }
    if (known.ended === undefined) return false;
    // Asked for when it is durable: until then its seq may change.
    const tell = (): void => {
      const { ended = 0, turnId } = known;
      this.#owe(client, ended, recordedEnd(this.#session, client, requestId, turnId, ended));
    };
    if (known.ended <= this.#session.order.head) tell();
    else this.#session.order.note(tell);
    return true;
  }
}
