/**
 * The envelope around an update: written around the stored bytes when they are sent, so replay parses nothing.
 *
 *   {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":S,"update": U ,"_meta":{"eventId":"E"}}}
 */
import { members, removeMembers, splice, stringifyWire } from '../../protocol/wire-text.ts';

export interface EnvelopeParts {
  readonly eventId: string;
  readonly isReplay: boolean;
  /** Members for `_meta.sidecar`, wire text without braces; empty for clients that did not opt in. */
  readonly sidecar?: string;
  /** The agent's own `params._meta`. */
  readonly meta?: string | undefined;
  readonly paramsRest?: string | undefined;
  readonly envelopeRest?: string | undefined;
}

export function envelopeHead(sessionId: string): string {
  return `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":${stringifyWire(sessionId)},"update":`;
}

/** The end of the common case: nothing around the update but our cursor. */
export function plainTail(eventId: string, isReplay: boolean): string {
  return isReplay ? `,"_meta":{"eventId":"${eventId}","isReplay":true}}}` : `,"_meta":{"eventId":"${eventId}"}}}`;
}

/** Keys of `_meta` that are ours; what the agent put there moves to `_meta.sidecar.agent`. */
const OUR_KEYS = ['eventId', 'isReplay', 'sidecar'];

export function envelopeTail(parts: EnvelopeParts): string {
  let meta = `"eventId":"${parts.eventId}"`;
  if (parts.isReplay) meta += ',"isReplay":true';
  let sidecar = parts.sidecar ?? '';
  if (parts.meta !== undefined) {
    const list = members(parts.meta);
    const moved = list.filter((entry) => OUR_KEYS.includes(entry.key));
    const kept = splice(parts.meta, removeMembers(parts.meta, list, OUR_KEYS));
    const inner = kept.slice(kept.indexOf('{') + 1, kept.lastIndexOf('}')).trim();
    if (inner !== '') meta += `,${inner}`;
    if (moved.length > 0) {
      const agent = moved.map((entry) => parts.meta?.slice(entry.keyStart, entry.valueEnd)).join(',');
      sidecar += `${sidecar === '' ? '' : ','}"agent":{${agent}}`;
    }
  }
  if (sidecar !== '') meta += `,"sidecar":{${sidecar}}`;
  const paramsRest = parts.paramsRest === undefined ? '' : `,${parts.paramsRest}`;
  const envelopeRest = parts.envelopeRest === undefined ? '' : `,${parts.envelopeRest}`;
  return `,"_meta":{${meta}}${paramsRest}}${envelopeRest}}`;
}
