/**
 * What the sidecar says about sessions, on its way to the local side: the cursor of each moves with it, and what only
 * clients are told that opted in, or what the local side has on its screen already, is kept back.
 */
import { rpcError } from '../../protocol/error.ts';
import {
  type JsonObject,
  type NotificationMessage,
  type ResponseMessage,
  errorText,
  isObject,
  paramsOf,
} from '../../protocol/json-rpc.ts';
import { stringifyWire, valueAt } from '../../protocol/wire-text.ts';
import type { AgentRequests } from './agent-requests.ts';
import { type PendingRequest, type PendingRequests, isAttach, isNotSent } from './pending-requests.ts';
import { type SessionBook, advance, advanceByChild, advanceForward, eventIdOf } from './session-book.ts';
import type { SessionResumer } from './session-resumer.ts';
import { sidecarOf, withoutSidecar } from '../../protocol/sidecar-meta.ts';

export interface FollowerDeps {
  readonly pending: PendingRequests;
  readonly sessions: SessionBook;
  readonly agentRequests: AgentRequests;
  readonly resumer: SessionResumer;
  readonly local: (wire: string) => void;
  readonly newId: () => string;
}

export class SessionFollower {
  /** The local side opted in itself and gets everything. */
  aware = false;
  readonly #deps: FollowerDeps;

  constructor(deps: FollowerDeps) {
    this.#deps = deps;
  }

  /** An answer of the sidecar: what it tells about sessions. */
  answered(request: PendingRequest, message: ResponseMessage): void {
    const result = message.value['result'];
    if (!message.result || !isObject(result)) return;
    const { method } = request;
    const params = valueAt(request.wire, ['params']) ?? '{}';
    const made = method === 'session/new' || method === 'session/fork';
    const sessionId = made ? result['sessionId'] : request.sessionId;
    if (typeof sessionId !== 'string') return;
    const { eventId, parent } = sidecarOf(result);
    if (isAttach(method) && typeof parent === 'string') {
      const session = this.#deps.sessions.get(parent) ?? this.#deps.sessions.open(parent, params);
      session.children.add(sessionId);
      if (typeof eventId === 'string') advanceForward(session, eventId);
    } else if (made || isAttach(method)) {
      const session = this.#deps.sessions.open(sessionId, params);
      session.replaying = false;
      if (typeof eventId === 'string') advanceForward(session, eventId);
      // Answered from memory, the new session may not be attached to this connection.
      if (made && request.again) this.#deps.resumer.begin(session);
    } else if (method === 'session/close' || method === 'session/delete' || method === 'session/detach') {
      this.#deps.sessions.close(sessionId);
      this.#deps.agentRequests.withdrawSession(sessionId);
    } else if (method === 'session/prompt' && typeof eventId === 'string') {
      const session =
        this.#deps.sessions.get(sessionId) ?? this.#deps.sessions.open(sessionId, attachParams(sessionId));
      advanceForward(session, eventId);
    }
  }

  /** A session has another log than before: nobody can say what became of the prompts that this one does not have. */
  replaced(sessionId: string): void {
    for (const { id } of this.#deps.pending.takeUnrecorded(sessionId)) {
      const detail = 'it is not in the log that the session has now; it may have run';
      const error = rpcError('interrupted', detail, { code: 'PROMPT_OUTCOME_UNKNOWN' });
      this.#deps.local(errorText(id, stringifyWire(error)));
    }
  }

  /** A `session/update`: moves the cursor, and is handed on unless the local side has it already. */
  update(message: NotificationMessage): void {
    const params = paramsOf(message);
    const session = this.#deps.sessions.ofUpdate(params);
    if (session?.skipping) return;
    const eventId = eventIdOf(params);
    if (session && eventId !== undefined) {
      const move = session.sessionId === params['sessionId'] ? advance : advanceByChild;
      move(session, eventId, params['update']);
    }
    const meta = params['_meta'];
    const isReplay = isObject(meta) && meta['isReplay'] === true;
    const prompt = this.#deps.pending.prompt(sidecarOf(params)['promptId']);
    if (prompt && session?.resuming === 'replaced') prompt.recorded = true;
    const mine = !isReplay && session?.replaying !== true && prompt !== undefined;
    // Our own prompt after a cut: it is on the screen of the local side already.
    if (mine) return;
    this.#deps.local(this.aware ? message.wire : withoutSidecar(message.wire));
  }

  extension(message: NotificationMessage): void {
    const params = paramsOf(message);
    const { sessionId } = params;
    const session = this.#deps.sessions.get(sessionId);
    const attach = typeof sessionId === 'string' ? this.#deps.pending.attachOf(sessionId) : undefined;
    if (message.method === '_sidecar/replay' && params['parent'] !== undefined) {
      // Of a child: nothing is known of its parent's cursor by it, and cut off it is replayed anew.
    } else if (message.method === '_sidecar/replay') {
      if (params['phase'] === 'begin' && attach) attach.replayBegan = true;
      const tracked =
        attach && !session
          ? this.#deps.sessions.open(attach.sessionId ?? '', valueAt(attach.wire, ['params']) ?? '{}')
          : session;
      if (tracked) {
        tracked.skipping = false;
        tracked.replaying = params['phase'] === 'begin' && attach !== undefined;
      }
    } else if (session?.skipping) return;
    else {
      const { eventId, state } = params;
      if (session && typeof eventId === 'string') advance(session, eventId);
      const prompt = this.#deps.pending.prompt(params['promptId']);
      if (prompt && session?.resuming === 'replaced') prompt.recorded = true;
      if (message.method === '_sidecar/turn') this.#turn(params, prompt);
      const closed = state === 'resolved' || state === 'cancelled' || state === 'interrupted';
      if (message.method === '_sidecar/approval' && closed)
        this.#deps.agentRequests.approvalClosed(params['approvalId']);
    }
    if (this.aware) this.#deps.local(message.wire);
  }

  /** A prompt that waited when its sidecar ended has a new id before it is sent again, in its place. */
  #turn({ turnId, state, error }: JsonObject, prompt: PendingRequest | undefined): void {
    if (prompt && typeof turnId === 'string') prompt.turnId = turnId;
    if (state !== 'ended' || !isNotSent(error)) return;
    const ended = this.#deps.pending.byTurn(turnId);
    if (ended) this.#deps.pending.renew(ended, this.#deps.newId);
  }
}

/** Of a session that the local side never attached by itself: a prompt did. */
function attachParams(sessionId: string): string {
  return stringifyWire({ sessionId, cwd: '/', mcpServers: [] });
}
