/** `session/prompt`: becomes a turn of its session. */
import { createHash } from 'node:crypto';
import { type JsonObject, type RequestMessage, isObject, paramsOf } from '../../protocol/json-rpc.ts';
import { valueAt } from '../../protocol/wire-text.ts';
import type { Connection } from '../connection.ts';
import { sidecarOf, withoutSidecarMeta } from '../../protocol/sidecar-meta.ts';
import { ensureAttached, sessionOf } from './session-of.ts';

const MAX_PROMPT_ID = 256;

export function promptSession(connection: Connection, message: RequestMessage): void {
  const given = paramsOf(message);
  const { prompt, _meta: meta } = given;
  if (!Array.isArray(prompt) || !prompt.every(isObject)) {
    connection.fail(message.id, 'invalid_params', 'session/prompt needs a prompt that is an array of content blocks');
    return;
  }
  const { promptId } = sidecarOf(given);
  if (
    promptId !== undefined &&
    !(typeof promptId === 'string' && promptId !== '' && promptId.length <= MAX_PROMPT_ID)
  ) {
    connection.fail(message.id, 'invalid_params', `promptId must be a string of 1 to ${MAX_PROMPT_ID} characters`);
    return;
  }
  const session = sessionOf(connection, message);
  if (!session || !message.params) return;
  if (connection.house.draining) {
    connection.fail(message.id, 'not_persisted', 'the sidecar is stopping; connect again', { reason: 'stopping' });
    return;
  }
  ensureAttached(connection, session);
  const params = withoutSidecarMeta(message.wire.slice(message.params.valueStart, message.params.valueEnd));
  const blocks = valueAt(params, ['prompt']) ?? '[]';
  const digest = promptId === undefined ? undefined : digestOf(prompt);
  const traceparent = isObject(meta) ? traceparentOf(meta['traceparent']) : undefined;
  const requestId = message.id;
  session.turns.prompt({ client: connection, requestId, params, prompt: blocks, promptId, digest, traceparent });
}

/** Of what the prompt says: a client that builds it anew may order its keys in another way. */
function digestOf(prompt: readonly JsonObject[]): string {
  const text = JSON.stringify(prompt, (_key, value: unknown) =>
    isObject(value) ? Object.fromEntries(Object.entries(value).toSorted(byKey)) : value,
  );
  return createHash('sha256').update(text).digest('base64url').slice(0, 22);
}

function byKey([a]: readonly [string, unknown], [b]: readonly [string, unknown]): number {
  return a < b ? -1 : 1;
}

/** @see https://www.w3.org/TR/trace-context/#traceparent-header */
function traceparentOf(value: unknown): string | undefined {
  return typeof value === 'string' && /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/.test(value)
    ? value
    : undefined;
}
