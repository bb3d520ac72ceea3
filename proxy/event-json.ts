/**
 * An event as programs see it: `{seq, eventId, time, type, turnId?, toolCallId?, synthetic?, payload}` on one line, in
 * `acp-sidecar events --json` and in the answer to `_sidecar/events`.
 */
import { settledId } from '../protocol/event-id.ts';
import { decodeWire, stringifyWire } from '../protocol/wire-text.ts';
import type { StoredEvent } from '../storage/event-codec.ts';

/** Wire text without a line end. The payload is the stored text itself, so its numbers and escapes are exact. */
export function eventJson(logId: string, event: StoredEvent): string {
  const head = stringifyWire({
    seq: event.seq,
    eventId: settledId(logId, event.seq),
    time: new Date(event.time).toISOString(),
    type: event.type,
    turnId: event.turnId === undefined ? undefined : decodeWire(event.turnId),
    toolCallId: event.toolCallId === undefined ? undefined : decodeWire(event.toolCallId),
    synthetic: event.synthetic ? true : undefined,
  });
  // A client may have sent pretty-printed JSON; line ends in it stand between tokens, never inside a string.
  return `${head.slice(0, -1)},"payload":${event.payload.replace(/[\r\n]+/g, ' ')}}`;
}
