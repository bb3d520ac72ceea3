/** Where the replay of a `session/load` or `session/resume` starts, and why there. */
import type { Position } from '../../protocol/event-id.ts';
import { type RequestMessage, isObject, paramsOf } from '../../protocol/json-rpc.ts';
import { isTextBoundary, resolveCursor } from '../../storage/cursor.ts';
import type { Session } from '../session/session.ts';

export type ReplayReason = 'no_cursor' | 'malformed' | 'foreign' | 'ahead' | 'diverged' | 'expired';

export interface ReplayStart {
  readonly mode: 'tail' | 'full' | 'none';
  readonly position: Position;
  /** Of a tail: the cursor as the client gave it. */
  readonly cursor?: string;
  readonly reason?: ReplayReason | undefined;
}

/** @param message its cursor is one of this session's log, also when it names a child */
export function replayStart(session: Session, message: RequestMessage): ReplayStart {
  const meta = paramsOf(message)['_meta'];
  const outer = isObject(meta) ? meta : {};
  const sidecar = isObject(outer['sidecar']) ? outer['sidecar'] : {};
  const cursor: unknown = sidecar['afterEventId'] ?? outer['cursor'] ?? undefined;
  const { order, row } = session;
  const beginning = { seq: row.low - 1, offset: 0 };
  if (cursor === undefined && message.method === 'session/resume') {
    return { mode: 'none', position: order.tip, reason: 'no_cursor' };
  }
  const front = order.front;
  const openRun = front && { seq: order.head + 1, length: front.length };
  let resolved = resolveCursor({ log: session.log, row, boot: session.boot, cursor, openRun });
  if (
    'ok' in resolved &&
    front &&
    resolved.ok.seq === order.head &&
    resolved.ok.offset > 0 &&
    resolved.ok.offset < front.length
  ) {
    const boundary = isTextBoundary(front.bytes, front.textStart, front.textStart + resolved.ok.offset);
    if (!boundary) resolved = { reason: 'malformed' };
  }
  if ('ok' in resolved) return { mode: 'tail', position: resolved.ok, cursor: String(cursor) };
  if (sidecar['fallback'] === 'none') return { mode: 'none', position: order.tip, reason: resolved.reason };
  return { mode: 'full', position: beginning, reason: resolved.reason };
}
