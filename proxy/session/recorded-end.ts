/** How a turn's end is told to whoever sent the prompt: now, or later from the log. */
import { rpcError } from '../../protocol/error.ts';
import { settledId } from '../../protocol/event-id.ts';
import { errorText, responseText } from '../../protocol/json-rpc.ts';
import { decodeWire, stringifyWire, valueAt } from '../../protocol/wire-text.ts';
import { decodeRecord } from '../../storage/event-codec.ts';
import type { Session } from './session.ts';
import { withSidecarMeta } from '../../protocol/sidecar-meta.ts';

/** @param result the agent's result, wire text; @param seq of the `turn_ended` */
export function promptResponse(session: Session, id: string, result: string, turnId: string, seq: number): string {
  const eventId = settledId(session.envelope.logId, seq);
  return responseText(id, withSidecarMeta(result, { turnId, eventId }));
}

/** The answer that the log has for a prompt that is sent again. */
export function recordedEnd(session: Session, id: string, turnId: string, seq: number): string {
  let payload = '{}';
  // What was pruned is answered by the event that stands for it.
  const from = Math.max(seq, session.row.low);
  session.log.scan(session.order.num, from, from, (at, record, length) => {
    const event = decodeRecord(record, length, at);
    if (!('unreadable' in event)) payload = event.payload;
    return false;
  });
  const response = valueAt(payload, ['response']);
  if (response !== undefined) return promptResponse(session, id, response, turnId, seq);
  const error = valueAt(payload, ['error']);
  if (error !== undefined) return errorText(id, error);
  const { code, message } = JSON.parse(decodeWire(payload)) as { code?: string; message?: string };
  return errorText(id, stringifyWire(rpcError('interrupted', message, { code, turnId })));
}
