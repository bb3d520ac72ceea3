/**
 * What a client must have advertised to be sent an update, live or in a replay. A gate is the path of the capability in
 * `clientCapabilities`. Source: the descriptions in `schema/v1/schema.unstable.json` of the SDK.
 */
import { isObject } from '../json-rpc.ts';
import { advertises } from '../methods.ts';
import { items, parseWire } from '../wire-text.ts';

export const GATES = Object.freeze([
  'session.notices',
  'session.compaction',
  'session.configOptions.boolean',
  'plan',
  'subagents',
] as const);

export type GateName = (typeof GATES)[number];

const GATE_OF_KIND: ReadonlyMap<string, GateName> = new Map([
  ['notice', 'session.notices'],
  ['compaction_update', 'session.compaction'],
  ['compaction_summary_chunk', 'session.compaction'],
  ['plan_update', 'plan'],
  ['plan_removed', 'plan'],
  ['subagent_update', 'subagents'],
  ['session_message', 'subagents'],
  ['session_message_chunk', 'subagents'],
]);

/**
 * The gate of a `sessionUpdate`; undefined when every client gets it. Two gates go by content instead: updates that
 * carry a child's `sessionId` need `subagents`, and boolean entries of `configOptions` need
 * `session.configOptions.boolean` (see `withoutItemsOfType`).
 */
export function gateOf(kindName: string): GateName | undefined {
  return GATE_OF_KIND.get(kindName);
}

/** The gates that a client's `clientCapabilities` open. */
export function gatesOf(clientCapabilities: unknown): Set<GateName> {
  return new Set(GATES.filter((gate) => advertises(clientCapabilities, gate)));
}

/**
 * Wire text of an array without its objects of one `type`, everything else byte for byte; the same text when there is
 * none. Takes `boolean` entries out of `configOptions` for clients that did not advertise them.
 */
export function withoutItemsOfType(arrayText: string, type: string): string {
  const spans = items(arrayText);
  const kept = spans.filter(([start, end]) => {
    const item = parseWire(arrayText.slice(start, end));
    return !isObject(item) || item['type'] !== type;
  });
  if (kept.length === spans.length) return arrayText;
  return `[${kept.map(([start, end]) => arrayText.slice(start, end)).join(',')}]`;
}
