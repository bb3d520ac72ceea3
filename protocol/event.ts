/**
 * Events: the durable records of a session. The names are what `acp-sidecar events` prints; the numbers are what the
 * disk holds and never change their meaning.
 */
export const EVENT_TYPES = {
  session_created: 1,
  session_bound: 2,
  turn_queued: 3,
  turn_started: 4,
  turn_ended: 5,
  update: 6,
  approval_requested: 7,
  approval_resolved: 8,
  approval_interrupted: 9,
  approval_reopened: 10,
  missing: 11,
  pruned: 12,
  session_forked: 13,
  session_closed: 14,
} as const;

export type EventType = keyof typeof EVENT_TYPES;

const NAMES = new Map<number, EventType>(Object.entries(EVENT_TYPES).map(([name, code]) => [code, name as EventType]));

/** The name of a stored type number; undefined when a newer version wrote it. */
export function eventTypeName(code: number): EventType | undefined {
  return NAMES.get(code);
}

/**
 * What an event holds. `payload` is wire text, by type:
 * - `update`: the `update` object of the agent's `session/update`, byte for byte
 * - `turn_started`: `{"prompt":[...],...}` the prompt's blocks byte for byte
 * - `turn_ended`: `{"outcome":"response","response":{...}}`, `{"outcome":"error","error":{...}}` or
 *   `{"outcome":"interrupted","code":"...","message":"..."}`; the agent's part byte for byte
 * - the others: JSON objects of ours, described in `protocol/event-payloads.ts`
 */
export interface EventFields {
  readonly type: EventType;
  readonly time: number;
  readonly payload: string;
  /** A reader that does not know the type must refuse the session. */
  readonly required?: boolean;
  /** Made by the sidecar, not by the agent or a client. */
  readonly synthetic?: boolean;
  readonly turnId?: string;
  readonly toolCallId?: string;
  /** The agent's `params._meta`, wire text of an object. */
  readonly meta?: string;
  /** The sessionId in the agent's envelope when it is a child's. */
  readonly childSessionId?: string;
  /** Other members of `params`, wire text without braces: `"a":1,"b":2`. */
  readonly paramsRest?: string;
  /** Other members of the message itself, in the same form. */
  readonly envelopeRest?: string;
}
