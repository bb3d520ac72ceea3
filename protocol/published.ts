/**
 * `acp-sidecar/protocol`: what programs need to know of the sidecar's words: its errors by `data.kind`, the types of
 * events that `acp-sidecar events --json` prints, and the table of ACP's methods.
 */
export { ERRORS, type ErrorKind, type InterruptedCode, type RpcError } from './error.ts';
export { EVENT_TYPES, type EventType } from './event.ts';
export { METHODS, type MethodSpec, methodOf } from './methods.ts';
