/** A log with a session in it, written event by event. */
import type { EventFields } from '../../protocol/event.ts';
import { updateKindCode } from '../../protocol/v1/update-kinds.ts';
import { stringifyWire } from '../../protocol/wire-text.ts';
import { encodeRecord } from '../../storage/event-codec.ts';
import type { EventLog, SessionRow } from '../../storage/event-log.ts';

export type WrittenEvent = Omit<EventFields, 'time'> & { readonly kind?: number };

export function updateEvent(update: object, more: Partial<EventFields> = {}): WrittenEvent {
  const kind = updateKindCode((update as { sessionUpdate?: unknown }).sessionUpdate);
  return { type: 'update', payload: stringifyWire(update), kind, ...more };
}

export function textEvent(text: string, sessionUpdate = 'agent_message_chunk'): WrittenEvent {
  return updateEvent({ sessionUpdate, content: { type: 'text', text } });
}

export function promptEvent(turnId: string, ...texts: string[]): WrittenEvent {
  const prompt = texts.map((text) => ({ type: 'text', text }));
  return { type: 'turn_started', required: true, turnId, payload: stringifyWire({ facts: {}, prompt }) };
}

export function turnEnd(turnId: string): WrittenEvent {
  const payload = '{"outcome":"response","response":{"stopReason":"end_turn"}}';
  return { type: 'turn_ended', required: true, turnId, payload };
}

/** Appends events to a session in commits of 500. */
export async function write(log: EventLog, row: SessionRow, events: readonly WrittenEvent[]): Promise<void> {
  for (let at = 0; at < Math.max(1, events.length); at += 500) {
    const firstSeq = log.lastSeq(row.num) + 1;
    const records = events
      .slice(at, at + 500)
      .map(({ kind = 0, ...event }, i) =>
        encodeRecord({ ...event, time: 1000 + firstSeq + i }, { boot: 'boot01', kind }),
      );
    const appends = records.length > 0 ? [{ num: row.num, firstSeq, records }] : [];
    const outcome = await log.commit({ appends, rows: [row] });
    if (outcome.outcome !== 'committed') throw new Error(JSON.stringify(outcome));
  }
}
