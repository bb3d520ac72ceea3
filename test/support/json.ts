/** JSON-RPC as the tests see it: parsed beside the raw text, with deep reads that need no type. */
export interface Message {
  readonly jsonrpc?: string;
  readonly id?: number | string | null;
  readonly method?: string;
  readonly params?: Record<string, unknown>;
  readonly result?: unknown;
  readonly error?: { readonly code: number; readonly message: string; readonly data?: unknown };
}

/** One message as it came: `text` is the line or frame, `message` what JSON.parse makes of it (undefined if nothing). */
export interface Received {
  readonly text: string;
  readonly message: Message;
}

/** The value at a path, undefined where the path ends early. */
export function at(value: unknown, ...path: readonly (string | number)[]): unknown {
  let found = value;
  for (const key of path) {
    if (typeof found !== 'object' || found === null) return undefined;
    found = (found as Record<string | number, unknown>)[key];
  }
  return found;
}

/** The string at a path. @throws when there is none, with the value that was there. */
export function textAt(value: unknown, ...path: readonly (string | number)[]): string {
  const found = at(value, ...path);
  if (typeof found !== 'string') throw new Error(`no string at ${path.join('.')} of ${JSON.stringify(value)}`);
  return found;
}

export function isRequest(message: Message): boolean {
  return message.method !== undefined && message.id !== undefined;
}

export function isResponse(message: Message): boolean {
  return message.method === undefined && ('result' in message || 'error' in message);
}

/** The `update` of a `session/update`, else undefined. */
export function updateOf(message: Message): Record<string, unknown> | undefined {
  if (message.method !== 'session/update') return undefined;
  return at(message, 'params', 'update') as Record<string, unknown> | undefined;
}

/** The cursor that a message carries: an update's or a notification's eventId, or a response's. */
export function eventIdOf(message: Message): string | undefined {
  const id =
    at(message, 'params', '_meta', 'eventId') ??
    at(message, 'result', '_meta', 'sidecar', 'eventId') ??
    (message.method?.startsWith('_sidecar/') ? at(message, 'params', 'eventId') : undefined);
  return typeof id === 'string' ? id : undefined;
}
