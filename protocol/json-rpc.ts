/**
 * JSON-RPC 2.0 messages as they are relayed: the wire text, the spans of the envelope's members, and the parsed value
 * for the few fields that we act on. An id is kept as the text it was written in, so `9007199254740993`, `1.0`, `null`
 * and `"1"` all come back as they went.
 *
 * Source: JSON-RPC 2.0; ACP v1 has no batches (SDK 2.4.0 MIGRATION: one -32600 with id null).
 */
import { type Edit, type Member, decodeWire, member, members, setValue, splice } from './wire-text.ts';

export type JsonObject = { readonly [key: string]: unknown };

interface Envelope {
  readonly wire: string;
  readonly members: readonly Member[];
  readonly value: JsonObject;
}
export interface RequestMessage extends Envelope {
  readonly kind: 'request';
  readonly id: string;
  readonly method: string;
  readonly params: Member | undefined;
}
export interface NotificationMessage extends Envelope {
  readonly kind: 'notification';
  readonly method: string;
  readonly params: Member | undefined;
}
export interface ResponseMessage extends Envelope {
  readonly kind: 'response';
  readonly id: string;
  readonly result: Member | undefined;
  readonly error: Member | undefined;
}
export interface InvalidMessage {
  readonly kind: 'invalid';
  readonly code: -32700 | -32600;
  readonly reason: string;
  /** The id to answer with, wire text. */
  readonly id: string;
}
export type Message = RequestMessage | NotificationMessage | ResponseMessage;

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function invalid(code: -32700 | -32600, reason: string, id = 'null'): InvalidMessage {
  return { kind: 'invalid', code, reason, id };
}

/** Reads one message. */
export function parseMessage(wire: string): Message | InvalidMessage {
  let value: unknown;
  try {
    value = JSON.parse(decodeWire(wire));
  } catch (error) {
    return invalid(-32700, `not JSON: ${(error as Error).message.slice(0, 120)}`);
  }
  if (Array.isArray(value)) return invalid(-32600, 'ACP has no JSON-RPC batches; send one message at a time');
  if (!isObject(value)) return invalid(-32600, 'a message must be a JSON object');
  const list = members(wire);
  const idMember = member(list, 'id');
  const id = idMember && wire.slice(idMember.valueStart, idMember.valueEnd);
  const idOk = value['id'] === null || typeof value['id'] === 'string' || typeof value['id'] === 'number';
  if (id !== undefined && !idOk) return invalid(-32600, 'an id must be a string, a number or null');
  if (value['jsonrpc'] !== undefined && value['jsonrpc'] !== '2.0') {
    return invalid(-32600, 'jsonrpc must be "2.0"', id);
  }
  if ('method' in value) {
    if (typeof value['method'] !== 'string') return invalid(-32600, 'method must be a string', id);
    const params = member(list, 'params');
    if (params && value['params'] !== null && typeof value['params'] !== 'object') {
      return invalid(-32600, 'params must be an object', id);
    }
    const method = value['method'];
    if (id === undefined) return { kind: 'notification', wire, members: list, value, method, params };
    return { kind: 'request', id, wire, members: list, value, method, params };
  }
  const result = member(list, 'result');
  const error = member(list, 'error');
  if (!result && !error) return invalid(-32600, 'a message needs a method, a result or an error', id);
  if (id === undefined) return invalid(-32600, 'a response needs the id of its request');
  return { kind: 'response', id, wire, members: list, value, result, error };
}

/** The parsed params of a request or notification, `{}` when it has none. */
export function paramsOf(message: RequestMessage | NotificationMessage): JsonObject {
  const params = message.value['params'];
  return isObject(params) ? params : {};
}

/** The wire text of a member's value. */
export function textOf(message: Envelope, found: Member): string {
  return message.wire.slice(found.valueStart, found.valueEnd);
}

/** The message with another id and further edits; everything else byte for byte. */
export function withId(message: RequestMessage | ResponseMessage, id: string, edits: readonly Edit[] = []): string {
  const idMember = member(message.members, 'id') as Member;
  return splice(message.wire, [setValue(idMember, id), ...edits]);
}

export function responseText(id: string, result: string): string {
  return `{"jsonrpc":"2.0","id":${id},"result":${result}}`;
}
export function errorText(id: string, error: string): string {
  return `{"jsonrpc":"2.0","id":${id},"error":${error}}`;
}
export function requestText(id: string, method: string, params: string): string {
  return `{"jsonrpc":"2.0","id":${id},"method":${JSON.stringify(method)},"params":${params}}`;
}
export function notificationText(method: string, params: string): string {
  return `{"jsonrpc":"2.0","method":${JSON.stringify(method)},"params":${params}}`;
}
