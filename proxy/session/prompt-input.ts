/** Prompts as clients send them, and in the forms in which they go to the log and to the agent. */
import { isObject } from '../../protocol/json-rpc.ts';
import { decodeWire, memberAt, setValue, splice, stringifyWire } from '../../protocol/wire-text.ts';
import type { Client } from './client.ts';

/** A prompt as a client sent it, without our `_meta`. */
export interface PromptInput {
  readonly client: Client;
  /** Id of the client's request, wire text. */
  readonly requestId: string;
  /** The params for the agent; their sessionId is replaced when they are forwarded. */
  readonly params: string;
  /** The `prompt` array, wire text. */
  readonly prompt: string;
  readonly promptId: string | undefined;
  /** Of a prompt that has a promptId, to know the same one with other content. */
  readonly digest: string | undefined;
  /** W3C trace context of the request, for the log; it reaches the agent inside the params. */
  readonly traceparent: string | undefined;
}

/** What is kept of a prompt beside its blocks. */
export function turnFacts(turn: PromptInput): string {
  const { promptId, digest, client, traceparent } = turn;
  return stringifyWire({ promptId, clientId: client.clientId, digest, traceparent });
}

/** The text of a prompt's text blocks, as an echoing agent would send it back. */
export function promptText(prompt: string): string {
  const blocks: unknown = JSON.parse(decodeWire(prompt));
  if (!Array.isArray(blocks)) return '';
  return blocks
    .map((block: unknown) => (isObject(block) && typeof block['text'] === 'string' ? block['text'] : ''))
    .join('');
}

/** The params with a text block before the prompt's own. */
export function primedParams(params: string, primer: string): string {
  const found = memberAt(params, ['prompt']);
  if (!found) return params;
  const blocks = params.slice(found.valueStart, found.valueEnd);
  const rest = blocks.slice(blocks.indexOf('[') + 1);
  const block = stringifyWire({ type: 'text', text: primer });
  return splice(params, [setValue(found, `[${block}${rest.trim() === ']' ? '' : ','}${rest}`)]);
}
