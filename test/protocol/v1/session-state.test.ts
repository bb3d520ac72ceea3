import { expect, it } from 'vitest';
import { applyEvent, emptySessionState } from '../../../protocol/v1/session-state.ts';

it.each([
  ['the agent answered', false, true],
  ['the sidecar ended', true, false],
])('[AG8] a turn that %s (synthetic: %s) proves that the agent has the conversation: %s', (_, synthetic, proven) => {
  const state = emptySessionState();
  const bound = '{"agentSessionId":"a","how":"primed","response":{}}';
  const ended = '{"outcome":"response","response":{"stopReason":"cancelled"}}';
  applyEvent(state, { seq: 1, type: 'session_bound', kind: 0, payload: () => bound });
  applyEvent(state, { seq: 2, type: 'turn_ended', kind: 0, turnId: 't', synthetic, payload: () => ended });
  expect(state.bound?.proven).toBe(proven);
});
