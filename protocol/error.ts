import { isObject } from './json-rpc.ts';

/**
 * The closed table of the errors that are ours. The README repeats it and a test compares the two. Errors of the agent
 * pass unchanged and are not in it; -32000 (`auth_required`) is only ever the agent's.
 */
export interface ErrorSpec {
  readonly code: number;
  /** Whose fault it is; `nobody` for the normal course of things. */
  readonly fault: 'client' | 'agent' | 'sidecar' | 'nobody';
  /** Whether the same request may be sent again: at once and safely, after a while, never, or as `data.code` says. */
  readonly retry: 'safe' | 'later' | 'no' | 'see_code';
  /** What is wrong and what to do. */
  readonly text: string;
}

const TABLE = {
  parse_error: {
    code: -32700,
    fault: 'client',
    retry: 'no',
    text: 'The message is not valid JSON. Send one JSON-RPC 2.0 message a line or frame.',
  },
  invalid_request: {
    code: -32600,
    fault: 'client',
    retry: 'no',
    text: 'The message is not a JSON-RPC 2.0 request, notification or response. Batches are not part of ACP.',
  },
  method_not_found: {
    code: -32601,
    fault: 'client',
    retry: 'no',
    text: 'The method is not available. Look at the capabilities in the response to initialize.',
  },
  invalid_params: {
    code: -32602,
    fault: 'client',
    retry: 'no',
    text: 'The params do not fit the method. Correct them and send the request again.',
  },
  internal: {
    code: -32603,
    fault: 'sidecar',
    retry: 'later',
    text: 'The sidecar failed to handle the request. Its log on stderr tells why.',
  },
  client_gone: {
    code: -32603,
    fault: 'client',
    retry: 'no',
    text: 'The client that had this request is gone. Whether it was carried out is not known.',
  },
  log_damaged: {
    code: -32603,
    fault: 'sidecar',
    retry: 'no',
    text: 'The log of the session is damaged. Run `acp-sidecar verify` to see where, and restore a backup.',
  },
  unknown_session: {
    code: -32002,
    fault: 'client',
    retry: 'no',
    text: 'No such session. session/list tells which there are.',
  },
  cancelled: {
    code: -32800,
    fault: 'nobody',
    retry: 'no',
    text: 'The request was cancelled. What it did until then stays done.',
  },
  session_busy: {
    code: -32010,
    fault: 'nobody',
    retry: 'later',
    text: 'A turn is running in the session. Send the prompt again when it has ended.',
  },
  not_persisted: {
    code: -32010,
    fault: 'sidecar',
    retry: 'safe',
    text: 'The request was not stored and never reached the agent. Send it again when the store has room, or to the next sidecar when this one is stopping.',
  },
  not_recorded: {
    code: -32010,
    fault: 'sidecar',
    retry: 'no',
    text: 'The turn ran, but its end could not be stored. Look at what it did before sending the prompt again.',
  },
  interrupted: {
    code: -32010,
    fault: 'agent',
    retry: 'see_code',
    text: 'The turn was interrupted. data.code tells whether the prompt can have reached the agent.',
  },
  agent_unavailable: {
    code: -32010,
    fault: 'agent',
    retry: 'later',
    text: 'The agent is not running and could not be started. data.stderr has the end of its output.',
  },
  message_too_large: {
    code: -32010,
    fault: 'client',
    retry: 'no',
    text: 'The message is larger than --max-message-bytes. Send less, or raise the limit.',
  },
  observer: {
    code: -32010,
    fault: 'client',
    retry: 'no',
    text: 'This connection is an observer. Connect with a controller token to change the session.',
  },
  limit_reached: {
    code: -32010,
    fault: 'client',
    retry: 'later',
    text: 'A limit of the sidecar is reached. data.limit tells which; wait for answers before asking for more.',
  },
  read_only: {
    code: -32010,
    fault: 'sidecar',
    retry: 'no',
    text: 'The session can be read but not continued. data.reason tells why.',
  },
  protocol_version: {
    code: -32010,
    fault: 'client',
    retry: 'no',
    text: 'The protocol version is not supported here. Use version 1.',
  },
  unreachable: {
    code: -32010,
    fault: 'nobody',
    retry: 'later',
    text: 'The sidecar cannot be reached. Look at its address and whether it runs.',
  },
  refused: {
    code: -32010,
    fault: 'client',
    retry: 'no',
    text: 'The sidecar refuses the connection. Look at the address and the token.',
  },
} as const satisfies Record<string, ErrorSpec>;

export type ErrorKind = keyof typeof TABLE;

/** The whole table. */
export const ERRORS: Readonly<Record<ErrorKind, ErrorSpec>> = Object.freeze(TABLE);

/** `data.code` of `interrupted`. */
export type InterruptedCode = 'PROMPT_NOT_SENT' | 'PROMPT_OUTCOME_UNKNOWN';

/** The `error` member of a JSON-RPC response. */
export interface RpcError {
  readonly code: number;
  readonly message: string;
  readonly data: { readonly kind: ErrorKind; readonly [key: string]: unknown };
}

/**
 * An error of ours. The message is what is wrong and what to do, with `detail` (a sentence without its full stop)
 * after it; `data` carries the kind and what the caller adds, e.g. `{sessionId}` for `unknown_session`.
 */
export function rpcError(kind: ErrorKind, detail?: string, data?: Readonly<Record<string, unknown>>): RpcError {
  const { code, text } = ERRORS[kind];
  const message = detail === undefined ? text : `${text} (${detail})`;
  return { code, message, data: { ...data, kind } };
}

/** The kind of an error of ours, undefined when the agent made it. */
export function kindOfError(error: { readonly code?: unknown; readonly data?: unknown }): ErrorKind | undefined {
  const kind: unknown = isObject(error.data) ? error.data['kind'] : undefined;
  if (typeof kind !== 'string' || !Object.hasOwn(ERRORS, kind)) return undefined;
  return ERRORS[kind as ErrorKind].code === error.code ? (kind as ErrorKind) : undefined;
}
