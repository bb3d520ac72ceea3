/** Which sessions, and which events of a session, a policy lets go. Pure but for reading the log. */
import { EVENT_TYPES, eventTypeName } from '../protocol/event.ts';
import { prunedPayload } from '../protocol/v1/pruned-state.ts';
import { applyEvent, emptySessionState, type SessionState } from '../protocol/v1/session-state.ts';
import { decodeWire } from '../protocol/wire-text.ts';
import { decodeRecord, type StoredEvent, timeOf, typeCode } from './event-codec.ts';
import type { EventLog, SessionRow } from './event-log.ts';
import { SessionTitles } from './session-title.ts';

/** What is kept; undefined members set no limit. */
export interface RetainPolicy {
  readonly ageMs?: number;
  /** Of sessions, or of a session's events. */
  readonly count?: number;
  readonly bytes?: number;
}

export interface SessionSize {
  readonly row: SessionRow;
  /** Of its own records. */
  readonly bytes: number;
  /** Nothing runs or waits in it and nobody is on it. */
  readonly idle: boolean;
}

/** The sessions that go: the newest are kept as far as the policy goes, and all that are in use. */
export function sessionsToPrune(sessions: readonly SessionSize[], policy: RetainPolicy, now: number): SessionRow[] {
  const {
    ageMs = Number.POSITIVE_INFINITY,
    count = Number.POSITIVE_INFINITY,
    bytes = Number.POSITIVE_INFINITY,
  } = policy;
  const newestFirst = sessions.toSorted((a, b) => b.row.updatedAt - a.row.updatedAt || b.row.num - a.row.num);
  const go: SessionRow[] = [];
  let kept = 0;
  let keptBytes = 0;
  for (const session of newestFirst) {
    const fits = kept < count && keptBytes + session.bytes <= bytes && now - session.row.updatedAt <= ageMs;
    if (session.idle && !fits) go.push(session.row);
    else {
      kept++;
      keptBytes += session.bytes;
    }
  }
  return go;
}

const PAGE_EVENTS = 500;

/** Visits the records of a session in slices, others run in between. False when one cannot be read or is missing. */
export async function visitRecords(
  log: EventLog,
  row: SessionRow,
  to: number,
  visit: (seq: number, record: Buffer, length: number) => boolean,
): Promise<boolean> {
  for (let from = row.low; from <= to; from += PAGE_EVENTS) {
    const last = Math.min(to, from + PAGE_EVENTS - 1);
    await log.prefetch(row.num, from, last);
    let good = true;
    const scan = log.scan(row.num, from, last, (seq, record, length) => (good = visit(seq, record, length)));
    if (!good || scan.outcome === 'gap') return false;
    await new Promise((resolve) => setImmediate(resolve));
  }
  return true;
}

/** Where a session's log is cut: `low` is the end of a turn, whose place the `pruned` event takes. */
export interface Cut {
  readonly low: number;
  readonly payload: string;
}

/**
 * The cut that a policy asks for; undefined when there is none, or the log cannot be read.
 * @param after the cut must be behind this event: what a fork shares
 * @param upTo the cut must not be behind this one: what the slowest client has seen
 */
export async function findCut(
  log: EventLog,
  row: SessionRow,
  policy: RetainPolicy,
  { after, upTo, now }: { readonly after: number; readonly upTo: number; readonly now: number },
): Promise<Cut | undefined> {
  const target = Math.min(upTo, await policyTarget(log, row, policy, now));
  if (target <= row.low) return undefined;
  let low = 0;
  const state = emptySessionState();
  const good = await foldTo(log, row, target, state, (seq, ended) => {
    if (ended && seq > Math.max(row.low, after) && isQuiet(state)) low = seq;
  });
  if (!good || low === 0) return undefined;
  const upToLow = emptySessionState();
  if (!(await foldTo(log, row, low, upToLow, () => undefined))) return undefined;
  const firstWords = new SessionTitles(log).of({ ...row, title: null });
  return { low, payload: prunedPayload(upToLow, { low, events: low - row.low, firstWords }) };
}

/** The last event that the policy lets go. */
async function policyTarget(log: EventLog, row: SessionRow, policy: RetainPolicy, now: number): Promise<number> {
  const { ageMs, count, bytes } = policy;
  const last = log.lastSeq(row.num);
  let target = count === undefined ? 0 : last - count;
  if (ageMs === undefined && bytes === undefined) return target;
  const sizes: number[] = [];
  await visitRecords(log, row, last, (seq, record, length) => {
    if (ageMs !== undefined && timeOf(record) < now - ageMs) target = Math.max(target, seq);
    if (bytes !== undefined) sizes.push(length);
    return true;
  });
  if (bytes !== undefined) {
    let left = bytes;
    let keep = 0;
    while (keep < sizes.length && left - (sizes[sizes.length - 1 - keep] as number) >= 0) {
      left -= sizes[sizes.length - 1 - keep] as number;
      keep++;
    }
    target = Math.max(target, last - keep);
  }
  return target;
}

/** Nothing runs and nothing is asked: what comes later needs nothing of what was before. */
function isQuiet(state: SessionState): boolean {
  if (state.openTurns.size > 0) return false;
  for (const { state: now } of state.approvals.values()) if (now === 'pending') return false;
  return true;
}

function foldTo(
  log: EventLog,
  row: SessionRow,
  to: number,
  state: SessionState,
  folded: (seq: number, ended: boolean) => void,
): Promise<boolean> {
  return visitRecords(log, row, to, (seq, record, length) => {
    const event = decodeRecord(record, length, seq);
    if ('unreadable' in event) return false;
    applyEvent(state, foldedEvent(event, typeCode(record)));
    folded(seq, typeCode(record) === EVENT_TYPES.turn_ended);
    return true;
  });
}

function foldedEvent(event: StoredEvent, code: number): Parameters<typeof applyEvent>[1] {
  const { seq, kind, turnId, toolCallId, childSessionId, synthetic, payload, type } = event;
  return {
    seq,
    type: eventTypeName(code) ?? type,
    kind,
    turnId,
    toolCallId: toolCallId === undefined ? undefined : decodeWire(toolCallId),
    childSessionId: childSessionId === undefined ? undefined : decodeWire(childSessionId),
    synthetic,
    payload: () => payload,
  };
}
