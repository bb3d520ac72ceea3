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

it.each([
  ['PROMPT_NOT_SENT', true, undefined],
  ['PROMPT_OUTCOME_UNKNOWN', true, 2],
  // An agent may say what it likes.
  ['PROMPT_NOT_SENT', false, 2],
])('[TU7] a promptId whose turn ended with %s (synthetic: %s) has its end at %s', (code, synthetic, ended) => {
  const state = emptySessionState();
  const queued = '{"facts":{"promptId":"p","digest":"d"}}';
  applyEvent(state, { seq: 1, type: 'turn_queued', kind: 0, turnId: 't', payload: () => queued });
  const end = `{"outcome":"interrupted","code":"${code}","message":"m"}`;
  applyEvent(state, { seq: 2, type: 'turn_ended', kind: 0, turnId: 't', synthetic, payload: () => end });
  expect(state.prompts.get('p')?.ended).toBe(ended);
});
