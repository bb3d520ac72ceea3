/**
 * Where a session may be forked: at the end of a finished turn. Not inside a turn, not in a tool call of the last one
 * that goes on behind its end (one that a later turn has left behind is over), and not while the agent compacts its
 * context.
 */
import { EVENT_TYPES } from '../../protocol/event.ts';
import { parseEventId } from '../../protocol/event-id.ts';
import { isObject } from '../../protocol/json-rpc.ts';
import { UPDATE_KINDS } from '../../protocol/v1/update-kinds.ts';
import { parseWire } from '../../protocol/wire-text.ts';
import { decodeRecord, type StoredEvent, typeCode, updateKind } from '../../storage/event-codec.ts';
import type { EventLog, SessionRow } from '../../storage/event-log.ts';

export type ForkPoint =
  /** `last`: no turn began after it, so it is where the agent's own session stands. */
  { readonly seq: number; readonly last: boolean } | { readonly refused: string };

/** @param atEventId what the client asked for; undefined: the end of the last finished turn */
export function forkPoint(log: EventLog, row: SessionRow, head: number, atEventId: unknown): ForkPoint {
  let wanted: number | undefined;
  if (atEventId !== undefined) {
    const id = parseEventId(atEventId);
    if (!id || id.form !== 'settled') return { refused: 'atEventId is not the eventId of a whole event' };
    if (id.logId !== row.logId) return { refused: 'atEventId is of another session' };
    if (id.seq > head || id.seq < row.low - 1) return { refused: 'atEventId is of no event that the session has' };
    wanted = id.seq;
  }
  const found = scanForPoints(log, row, head, wanted);
  if (found.damaged !== undefined) return { refused: found.damaged };
  if (wanted !== undefined && !found.wantedIsGood) {
    return { refused: 'atEventId is inside a turn, a tool call or a compaction; take the end of a finished turn' };
  }
  if (wanted === undefined && found.lastGood < found.lastEnd) {
    const what = 'a tool call of the last finished turn, or a compaction, is not over';
    return { refused: `${what}; name the end of an earlier turn as atEventId, or wait for it` };
  }
  const seq = wanted ?? found.lastGood;
  return { seq, last: found.lastBegun <= seq };
}

function scanForPoints(
  log: EventLog,
  row: SessionRow,
  head: number,
  wanted: number | undefined,
): { lastGood: number; lastEnd: number; lastBegun: number; wantedIsGood: boolean; damaged?: string } {
  const turns = new Set<string>();
  const compactions = new Set<string>();
  const tools = new Set<string>();
  let lastGood = row.low - 1;
  let lastEnd = lastGood;
  let lastBegun = 0;
  let wantedIsGood = wanted === row.low - 1;
  let damaged: string | undefined;
  const scanned = log.scan(row.num, row.low, head, (seq, record, length) => {
    const type = typeCode(record);
    const begins = type === EVENT_TYPES.turn_queued || type === EVENT_TYPES.turn_started;
    const kind = type === EVENT_TYPES.update ? updateKind(record) : undefined;
    const compacts = kind === UPDATE_KINDS.compaction_update;
    const calls = kind === UPDATE_KINDS.tool_call || kind === UPDATE_KINDS.tool_call_update;
    if (type === EVENT_TYPES.pruned) {
      // It stands for the end of a turn, where nothing ran, and for all that was before.
      turns.clear();
      compactions.clear();
      tools.clear();
    }
    if (begins || compacts || calls || type === EVENT_TYPES.turn_ended) {
      const event = decodeRecord(record, length, seq, false);
      if ('unreadable' in event) {
        damaged = `event ${seq}: ${event.detail}`;
        return false;
      }
      if (compacts) noteCompaction(compactions, event.payload);
      else if (calls) noteTool(tools, event);
      else if (begins) turns.add(event.turnId ?? '');
      else turns.delete(event.turnId ?? '');
      if (begins) lastBegun = seq;
      if (type === EVENT_TYPES.turn_started) tools.clear();
      if (type === EVENT_TYPES.turn_ended && turns.size === 0) lastEnd = seq;
    }
    if (turns.size === 0 && compactions.size === 0 && tools.size === 0) {
      lastGood = seq;
      if (seq === wanted) wantedIsGood = true;
    }
    return true;
  });
  if (scanned.outcome === 'gap') damaged = `event ${scanned.seq} is missing`;
  return { lastGood, lastEnd, lastBegun, wantedIsGood, ...(damaged === undefined ? {} : { damaged }) };
}

function noteTool(tools: Set<string>, { toolCallId, childSessionId, payload }: StoredEvent): void {
  const id = `${childSessionId ?? ''} ${toolCallId ?? ''}`;
  const update = parseWire(payload);
  const status = isObject(update) ? update['status'] : undefined;
  if (status === 'completed' || status === 'failed') tools.delete(id);
  else if (isObject(update) && (update['sessionUpdate'] === 'tool_call' || typeof status === 'string')) tools.add(id);
}

function noteCompaction(compactions: Set<string>, payload: string): void {
  const update = parseWire(payload);
  if (!isObject(update)) return;
  const id = String(update['compactionId']);
  if (update['status'] === 'in_progress') compactions.add(id);
  else compactions.delete(id);
}
