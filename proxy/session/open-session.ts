/** Opening a cold session: its log is folded once into what the session needs to go on. */
import { EVENT_TYPES, eventTypeName } from '../../protocol/event.ts';
import { rpcError, type RpcError } from '../../protocol/error.ts';
import { type SessionState, applyEvent, emptySessionState } from '../../protocol/v1/session-state.ts';
import { UPDATE_KINDS } from '../../protocol/v1/update-kinds.ts';
import { decodeWire } from '../../protocol/wire-text.ts';
import { decodeRecord, typeCode, unreadableRecord, updateKind } from '../../storage/event-codec.ts';
import type { EventLog, SessionRow } from '../../storage/event-log.ts';

/** Kinds of update that the fold looks at; all others are only checked. */
const FOLDED = new Set<number>([
  UPDATE_KINDS.tool_call,
  UPDATE_KINDS.tool_call_update,
  UPDATE_KINDS.available_commands_update,
  UPDATE_KINDS.current_mode_update,
  UPDATE_KINDS.config_option_update,
  UPDATE_KINDS.session_info_update,
  UPDATE_KINDS.subagent_update,
]);

export type Folded = { readonly state: SessionState; readonly head: number } | { readonly error: RpcError };

/** @param to the last event that counts; the log's last one when not given */
export function foldLog(log: EventLog, row: SessionRow, to: number = Number.POSITIVE_INFINITY): Folded {
  const state = emptySessionState();
  const head = Math.min(to, log.lastSeq(row.num));
  let error: RpcError | undefined;
  const damaged = (seq: number, detail: string): RpcError =>
    rpcError('log_damaged', `event ${seq}: ${detail}`, { sessionId: row.sessionId, seq });
  const scanned = log.scan(row.num, row.low, head, (seq, record, length) => {
    const code = typeCode(record);
    if (code === EVENT_TYPES.update && !FOLDED.has(updateKind(record))) {
      const unreadable = unreadableRecord(record, length, seq);
      if (unreadable) error = damaged(seq, unreadable.detail);
      else if (updateKind(record) === UPDATE_KINDS.user_message_chunk) state.userMessages++;
      return error === undefined;
    }
    const event = decodeRecord(record, length, seq);
    if ('unreadable' in event) {
      error = damaged(seq, event.detail);
      return false;
    }
    const { kind, turnId, payload } = event;
    applyEvent(state, {
      seq,
      type: eventTypeName(code) ?? event.type,
      kind,
      turnId,
      toolCallId: event.toolCallId === undefined ? undefined : decodeWire(event.toolCallId),
      childSessionId: event.childSessionId === undefined ? undefined : decodeWire(event.childSessionId),
      synthetic: event.synthetic,
      payload: () => payload,
    });
    return true;
  });
  if (error) return { error };
  if (scanned.outcome === 'gap') return { error: damaged(scanned.seq, 'it is missing') };
  return { state, head };
}
