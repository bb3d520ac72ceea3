/** What a client that opted in (`clientCapabilities._meta.sidecar = {version: 1}`) is told, typed. Source: the README. */
import { isAhead } from './session-book.ts';
import { parseEventId, positionOf, comparePositions } from '../../protocol/event-id.ts';

export interface SidecarCapability {
  readonly version: 1;
  readonly role?: 'controller' | 'observer';
  readonly clientId?: string;
  readonly name?: string;
}

export interface ReplayNotification {
  readonly sessionId: string;
  /** Of a child session: its parent. */
  readonly parent?: string;
  readonly phase: 'begin' | 'end';
  readonly mode: 'tail' | 'full';
  readonly reason?: ReplayReason;
  readonly fromEventId?: string;
  readonly toEventId: string;
}

export type ReplayReason = 'no_cursor' | 'malformed' | 'foreign' | 'ahead' | 'diverged' | 'expired';

export interface TurnNotification {
  readonly sessionId: string;
  readonly turnId: string;
  readonly state: 'queued' | 'running' | 'ended';
  readonly promptId?: string;
  readonly clientId?: string;
  readonly stopReason?: string;
  readonly error?: { readonly kind: string; readonly message?: string; readonly code?: string };
  readonly eventId?: string;
}

export interface ApprovalNotification {
  readonly sessionId: string;
  readonly approvalId: string;
  readonly toolCallId?: string;
  readonly state: 'pending' | 'resolved' | 'interrupted' | 'reopened' | 'cancelled';
  readonly outcome?: unknown;
  readonly by?: { readonly clientId?: string; readonly name?: string } | null;
  readonly eventId: string;
}

export interface AgentNotification {
  readonly sessionId: string;
  readonly state: 'starting' | 'ready' | 'exited' | 'failed';
  readonly continuity?: 'new' | 'resumed' | 'loaded' | 'primed';
  readonly exitCode?: number | null;
  readonly signal?: string | null;
  readonly eventId?: string;
}

export interface ClientsNotification {
  readonly sessionId: string;
  readonly clients: readonly {
    readonly clientId?: string;
    readonly name?: string;
    readonly role: 'controller' | 'observer';
    readonly driver: boolean;
  }[];
}

export interface LogNotification {
  readonly sessionId: string;
  readonly state: 'ok' | 'read_only' | 'failed';
  readonly reason?: string;
}

/** Params by method of what the sidecar sends. */
export interface SidecarNotifications {
  '_sidecar/replay': ReplayNotification;
  '_sidecar/turn': TurnNotification;
  '_sidecar/approval': ApprovalNotification;
  '_sidecar/agent': AgentNotification;
  '_sidecar/clients': ClientsNotification;
  '_sidecar/log': LogNotification;
}

/** `_meta.sidecar` in the result of `session/load` and `session/resume`. */
export interface AttachResult {
  /** Of a child session: its parent, whose log and cursors these are. */
  readonly parent?: string;
  readonly mode: 'tail' | 'full' | 'none';
  readonly reason?: ReplayReason;
  readonly eventId: string;
  readonly truncated?: true;
  readonly turn?: { readonly turnId: string; readonly state: 'queued' | 'running' };
  readonly approvals: number;
}

/** Reads a notification of the sidecar; undefined when it is another message. */
export function sidecarNotification<M extends keyof SidecarNotifications>(
  message: unknown,
  method: M,
): SidecarNotifications[M] | undefined {
  const { method: found, params } = (message ?? {}) as { method?: unknown; params?: unknown };
  return found === method && typeof params === 'object' && params !== null
    ? (params as SidecarNotifications[M])
    : undefined;
}

/** `_meta` for `session/load` and `session/resume` that asks for the events after a cursor. */
export function afterEvent(
  afterEventId: string,
  fallback: 'full' | 'none' = 'full',
): { readonly sidecar: { readonly afterEventId: string; readonly fallback: 'full' | 'none' } } {
  return { sidecar: { afterEventId, fallback } };
}

/**
 * Keeps the cursor of each session, for a client that wants to go on after a restart of its own: pass it every message,
 * store what `get` says, and give it to `afterEvent` later.
 */
export class CursorTracker {
  readonly #cursors = new Map<string, string>();

  constructor(stored: Iterable<readonly [sessionId: string, eventId: string]> = []) {
    for (const [sessionId, eventId] of stored) this.#cursors.set(sessionId, eventId);
  }

  get(sessionId: string): string | undefined {
    return this.#cursors.get(sessionId);
  }

  entries(): IterableIterator<[string, string]> {
    return this.#cursors.entries();
  }

  /** The params of a `session/update` that was applied. */
  applied(params: { readonly sessionId: string; readonly _meta?: unknown }): void {
    const eventId = (params._meta as { eventId?: unknown } | null | undefined)?.eventId;
    if (typeof eventId === 'string') this.#cursors.set(params.sessionId, eventId);
  }

  /** The result of new, load, resume, fork or prompt of a session. It never moves a cursor back: a prompt may be answered late. */
  answered(sessionId: string, result: { readonly _meta?: unknown }): void {
    const meta = result._meta as { sidecar?: { eventId?: unknown } } | null | undefined;
    const eventId = meta?.sidecar?.eventId;
    if (typeof eventId === 'string' && isAhead(eventId, this.get(sessionId))) this.#cursors.set(sessionId, eventId);
  }

  forget(sessionId: string): void {
    this.#cursors.delete(sessionId);
  }
}

/**
 * What to do with an update when the same session can arrive twice, for example from a cache and from a replay:
 * `apply` it, `skip` what is shown already, or `clear` the view first (a full replay begins).
 */
export function judgeUpdate(
  cursor: string | undefined,
  params: { readonly _meta?: unknown },
  inFullReplay: boolean,
): 'apply' | 'skip' | 'clear' {
  const meta = (params._meta ?? {}) as { eventId?: unknown; isReplay?: unknown };
  if (meta.isReplay === true) return inFullReplay ? 'apply' : 'clear';
  const next = parseEventId(meta.eventId);
  const known = parseEventId(cursor);
  if (!next || !known || next.logId !== known.logId) return 'apply';
  return comparePositions(positionOf(next), positionOf(known)) < 0 ? 'skip' : 'apply';
}
