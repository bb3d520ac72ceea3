/**
 * What the two questions of the agent, `session/request_permission` and `elicitation/create`, take for an answer. Source:
 * `RequestPermissionResponse` and `CreateElicitationResponse` in the SDK's v1 schema.
 */
import { type JsonObject, isObject } from './json-rpc.ts';
import type { Verdict } from './approval.ts';
import { stringifyWire } from './wire-text.ts';

export const APPROVAL_METHODS: ReadonlySet<string> = new Set(['session/request_permission', 'elicitation/create']);

export interface Question {
  readonly method: string;
  readonly params: JsonObject;
}

export interface Judged {
  readonly verdict: Verdict;
  /** What is wrong with an invalid answer. */
  readonly reason?: string;
}

/** What an answer is worth. @param answer the response, parsed */
export function judgeAnswer(question: Question, answer: JsonObject): Judged {
  if (answer['error'] !== undefined) return { verdict: 'error' };
  const result = answer['result'];
  if (!isObject(result)) return { verdict: 'invalid', reason: 'the result is not an object' };
  return question.method === 'session/request_permission'
    ? judgePermission(question.params, result)
    : judgeElicitation(result);
}

function judgePermission(params: JsonObject, result: JsonObject): Judged {
  const outcome = result['outcome'];
  if (!isObject(outcome)) return { verdict: 'invalid', reason: 'outcome is not an object' };
  if (outcome['outcome'] === 'cancelled') return { verdict: 'cancelled' };
  if (outcome['outcome'] !== 'selected') {
    return { verdict: 'invalid', reason: 'outcome.outcome is neither "selected" nor "cancelled"' };
  }
  const { optionId } = outcome;
  const offered = optionsOf(params).some((option) => option['optionId'] === optionId);
  return typeof optionId === 'string' && offered
    ? { verdict: 'valid' }
    : { verdict: 'invalid', reason: 'the option was not offered' };
}

function judgeElicitation(result: JsonObject): Judged {
  const { action, content } = result;
  if (action === 'cancel') return { verdict: 'cancelled' };
  if (action === 'accept') {
    return content === undefined || content === null || isObject(content)
      ? { verdict: 'valid' }
      : { verdict: 'invalid', reason: 'content is not an object' };
  }
  // Actions that begin with `_` are extensions that both ends know.
  return action === 'decline' || (typeof action === 'string' && action.startsWith('_'))
    ? { verdict: 'valid' }
    : { verdict: 'invalid', reason: 'action is none of "accept", "decline" and "cancel"' };
}

/** The result that stops the agent, wire text. */
export function cancelledResult(method: string): string {
  return method === 'session/request_permission' ? '{"outcome":{"outcome":"cancelled"}}' : '{"action":"cancel"}';
}

/** The result when nobody answered in time: the first `reject_once` option, else cancelled or declined. Never consent. */
export function timeoutResult(question: Question): { readonly result: string; readonly cancelled: boolean } {
  if (question.method !== 'session/request_permission') return { result: '{"action":"decline"}', cancelled: false };
  const reject = optionsOf(question.params).find((option) => option['kind'] === 'reject_once');
  if (typeof reject?.['optionId'] !== 'string') return { result: cancelledResult(question.method), cancelled: true };
  const outcome = { outcome: 'selected', optionId: reject['optionId'] };
  return { result: stringifyWire({ outcome }), cancelled: false };
}

/** The toolCallId that a question is about. */
export function toolCallIdOf({ params }: Question): string | undefined {
  const toolCall = params['toolCall'];
  const id = isObject(toolCall) ? toolCall['toolCallId'] : params['toolCallId'];
  return typeof id === 'string' ? id : undefined;
}

/**
 * What makes two questions the same when their toolCallIds differ: kind, title and rawInput of the tool call; for an
 * elicitation what it says and the form it shows. Undefined: nothing to tell it by.
 */
export function fingerprintOf({ method, params }: Question): string | undefined {
  if (method !== 'session/request_permission') {
    const { mode, message, requestedSchema } = params;
    return typeof message === 'string' ? JSON.stringify([method, mode, message, requestedSchema]) : undefined;
  }
  const toolCall = params['toolCall'];
  if (!isObject(toolCall)) return undefined;
  const { kind, title, rawInput } = toolCall;
  if (title === undefined && rawInput === undefined) return undefined;
  return JSON.stringify([method, kind, title, rawInput]);
}

/** The client that answers is sent to a page of the web: one is enough. */
export function asksOne({ method, params }: Question): boolean {
  return method === 'elicitation/create' && params['mode'] === 'url';
}

function optionsOf(params: JsonObject): readonly JsonObject[] {
  const { options } = params;
  return Array.isArray(options) ? options.filter(isObject) : [];
}
