import { describe, expect, it } from 'vitest';
import { ERRORS, type ErrorKind, rpcError } from '../../protocol/error.ts';

describe('the error table', () => {
  const kinds = Object.keys(ERRORS) as ErrorKind[];

  it('[ER1] gives every kind of ours code -32010 unless ACP or JSON-RPC has a code for it', () => {
    const own = kinds.filter((kind) => ERRORS[kind].code === -32010).toSorted();
    expect(own).toEqual([
      'agent_unavailable',
      'interrupted',
      'limit_reached',
      'message_too_large',
      'not_persisted',
      'not_recorded',
      'observer',
      'protocol_version',
      'read_only',
      'refused',
      'session_busy',
      'unreachable',
    ]);
    const others = Object.fromEntries(
      kinds.filter((kind) => !own.includes(kind)).map((kind) => [kind, ERRORS[kind].code]),
    );
    expect(others).toEqual({
      parse_error: -32700,
      invalid_request: -32600,
      method_not_found: -32601,
      invalid_params: -32602,
      internal: -32603,
      client_gone: -32603,
      log_damaged: -32603,
      unknown_session: -32002,
      cancelled: -32800,
    });
  });

  it("[ER2] never uses -32000, which is the agent's auth_required", () => {
    for (const kind of kinds) expect(ERRORS[kind].code, kind).not.toBe(-32000);
  });

  it.each(kinds)('[ER3] the error %s says what is wrong in sentences and carries its kind', (kind) => {
    const error = rpcError(kind);
    expect(error).toEqual({ code: ERRORS[kind].code, message: ERRORS[kind].text, data: { kind } });
    expect(error.message).toMatch(/^[A-Z].*\.$/);
  });

  it('[ER3] adds a detail and data, and data cannot replace the kind', () => {
    const error = rpcError('unknown_session', 'sess-1', { sessionId: 'sess-1', kind: 'internal' });
    expect(error.message).toBe('No such session. session/list tells which there are. (sess-1)');
    expect(error.data).toEqual({ kind: 'unknown_session', sessionId: 'sess-1' });
  });

  it('[ER4] only a request that never had an effect is safe to repeat', () => {
    expect(kinds.filter((kind) => ERRORS[kind].retry === 'safe').toSorted()).toEqual(['not_persisted']);
  });
});
