/** How a turn's end is told to whoever sent the prompt: now, or later from the log. */
import { rpcError } from '../../protocol/error.ts';
import type { Position } from '../../protocol/event-id.ts';
import { errorText, responseText } from '../../protocol/json-rpc.ts';
import { decodeWire, stringifyWire, valueAt } from '../../protocol/wire-text.ts';
import { decodeRecord } from '../../storage/event-codec.ts';
import type { Client } from './client.ts';
import type { Session } from './session.ts';
import { withSidecarMeta } from '../../protocol/sidecar-meta.ts';

/** @param result the agent's result, wire text; @param seq of the `turn_ended` */
export function promptResponse(session: Session, id: string, result: string, turnId: string, seq: number): string {
  return responseAt(session, id, result, turnId, { seq, offset: 0 });
}

function responseAt(session: Session, id: string, result: string, turnId: string, at: Position): string {
  return responseText(id, withSidecarMeta(result, { turnId, eventId: session.eventId(at) }));
}

/** The answer that the log has for a prompt that is sent again. */
export function recordedEnd(session: Session, client: Client, id: string, turnId: string, seq: number): string {
  let payload = '{}';
  // What was pruned is answered by the event that stands for it.
  const from = Math.max(seq, session.row.low);
  session.log.scan(session.order.num, from, from, (at, record, length) => {
    const event = decodeRecord(record, length, at);
    if (!('unreadable' in event)) payload = event.payload;
    return false;
  });
  const response = valueAt(payload, ['response']);
  if (response !== undefined) return responseAt(session, id, response, turnId, seenBy(session, client, seq));
  const error = valueAt(payload, ['error']);
  if (error !== undefined) return errorText(id, error);
  const { code, message } = JSON.parse(decodeWire(payload)) as { code?: string; message?: string };
  return errorText(id, stringifyWire(rpcError('interrupted', message, { code, turnId })));
}

/** Where the client is, at least behind the event `seq`: its cursor must not go back to an end that it has long seen. */
function seenBy({ clients, order }: Session, client: Client, seq: number): Position {
  const seen = clients.get(client)?.position;
  if (!seen || seen.seq < seq) return { seq, offset: 0 };
  return seen.seq === order.head ? seen : { seq: seen.seq, offset: 0 };
}
