/** The table "What the log's end says", row by row, as a pure function. */
import { describe, expect, it } from 'vitest';
import type { EventFields } from '../../protocol/event.ts';
import { applyEvent, emptySessionState, type SessionState } from '../../protocol/v1/session-state.ts';
import { updateKindCode } from '../../protocol/v1/update-kinds.ts';
import { decodeWire } from '../../protocol/wire-text.ts';
import { repairedView, repairEvents } from '../../storage/repair.ts';

type Event = Pick<EventFields, 'type' | 'turnId' | 'toolCallId'> & { readonly payload: object };

const queued = (turnId: string): Event => ({ type: 'turn_queued', turnId, payload: { facts: {} } });
const started = (turnId: string): Event => ({ type: 'turn_started', turnId, payload: { facts: {}, prompt: [] } });
const ended = (turnId: string): Event => ({
  type: 'turn_ended',
  turnId,
  payload: { outcome: 'response', response: {} },
});
const tool = (turnId: string, toolCallId: string, more: object = {}): Event => ({
  type: 'update',
  turnId,
  toolCallId,
  payload: { sessionUpdate: 'tool_call', toolCallId, title: 'Run', status: 'pending', ...more },
});
const patch = (turnId: string, toolCallId: string, more: object): Event => ({
  type: 'update',
  turnId,
  toolCallId,
  payload: { sessionUpdate: 'tool_call_update', toolCallId, ...more },
});
const options = [
  { optionId: 'yes', kind: 'allow_once', name: 'Yes' },
  { optionId: 'no', kind: 'reject_once', name: 'No' },
];
const asked = (toolCallId: string, approvalId = `a-${toolCallId}`): Event => ({
  type: 'approval_requested',
  toolCallId,
  payload: { approvalId, method: 'session/request_permission', params: { options } },
});
const answered = (toolCallId: string, outcome: object, approvalId = `a-${toolCallId}`): Event => ({
  type: 'approval_resolved',
  toolCallId,
  payload: { approvalId, outcome },
});
const selected = (optionId: string): object => ({ outcome: 'selected', optionId });

function fold(events: readonly Event[], state: SessionState = emptySessionState(), from = 0): SessionState {
  events.forEach((event, i) => {
    const { type, turnId, toolCallId, payload } = event;
    const kind = updateKindCode((payload as { sessionUpdate?: unknown }).sessionUpdate);
    const text = JSON.stringify(payload);
    applyEvent(state, { seq: from + i + 1, type, kind, turnId, toolCallId, payload: () => text });
  });
  return state;
}

interface Repaired {
  readonly type: string;
  readonly turnId?: string | undefined;
  readonly toolCallId?: string | undefined;
  readonly payload: Record<string, unknown>;
}

function repairOf(events: readonly Event[]): Repaired[] {
  return repairEvents(fold(events), 'the sidecar was stopped').map(({ type, turnId, toolCallId, payload }) => ({
    type,
    turnId,
    toolCallId,
    payload: JSON.parse(decodeWire(payload)) as Record<string, unknown>,
  }));
}

function codeOf(repaired: readonly Repaired[], toolCallId: string): unknown {
  const closer = repaired.find((event) => event.type === 'update' && event.toolCallId === toolCallId);
  return (closer?.payload['_meta'] as { sidecar: { code: string } } | undefined)?.sidecar.code;
}

describe('the log ends with', () => {
  it('[RE1] a turn that ended: nothing, also for a tool call that it left open', () => {
    expect(repairOf([queued('t'), started('t'), tool('t', 'c'), ended('t')])).toEqual([]);
    expect(repairOf([])).toEqual([]);
  });

  it('[RE2] a turn that was queued: it may be sent again', () => {
    const [end, ...others] = repairOf([queued('t')]);
    expect(others).toEqual([]);
    expect(end).toMatchObject({ type: 'turn_ended', turnId: 't' });
    expect(end?.payload).toMatchObject({ outcome: 'interrupted', code: 'PROMPT_NOT_SENT' });
  });

  it('[RE2] a turn that was started, with or without text: its outcome is unknown', () => {
    const text: Event = {
      type: 'update',
      turnId: 't',
      payload: { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: 'half' } },
    };
    for (const events of [
      [queued('t'), started('t')],
      [queued('t'), started('t'), text],
    ]) {
      expect(repairOf(events).map(({ payload }) => payload['code'])).toEqual(['PROMPT_OUTCOME_UNKNOWN']);
    }
  });

  it.each([
    ['never answered', [asked('c')]],
    ['interrupted', [asked('c'), { type: 'approval_interrupted', toolCallId: 'c', payload: { approvalId: 'a-c' } }]],
    ['refused', [asked('c'), answered('c', selected('no'))]],
    ['cancelled', [asked('c'), answered('c', { outcome: 'cancelled' })]],
    [
      'refused twice',
      [asked('c'), answered('c', selected('no')), asked('c', 'a2'), answered('c', selected('no'), 'a2')],
    ],
  ] as [string, Event[]][])('[RE3] a tool call whose approval was %s: it was not started', (_name, events) => {
    expect(codeOf(repairOf([started('t'), tool('t', 'c'), ...events]), 'c')).toBe('TOOL_NOT_STARTED');
  });

  it.each([
    ['that was never asked about', []],
    ['that was allowed', [asked('c'), answered('c', selected('yes'))]],
    ['whose answer was an error', [asked('c'), answered('c', { outcome: null })]],
    [
      'that was refused and ran all the same',
      [asked('c'), answered('c', selected('no')), patch('t', 'c', { status: 'in_progress' })],
    ],
    [
      'that was refused once and allowed once',
      [asked('c'), answered('c', selected('no')), asked('c', 'a2'), answered('c', selected('yes'), 'a2')],
    ],
  ] as [string, Event[]][])('[RE3] an open tool call %s: its outcome is unknown', (_name, events) => {
    expect(codeOf(repairOf([started('t'), tool('t', 'c'), ...events]), 'c')).toBe('TOOL_OUTCOME_UNKNOWN');
  });

  it('[RE3] a tool call that ended: nothing of it', () => {
    const done = [started('t'), tool('t', 'c'), patch('t', 'c', { status: 'completed' })];
    expect(repairOf(done).map(({ type }) => type)).toEqual(['turn_ended']);
  });

  it('[RE3] a closer says it for people too, behind what the call has shown', () => {
    const shown = { type: 'content', content: { type: 'text', text: 'so far' } };
    for (const content of [undefined, [], [shown]]) {
      const [closer] = repairOf([started('t'), tool('t', 'c', content && { content })]);
      const list = closer?.payload['content'] as { content: { text: string } }[];
      expect(list.slice(0, -1)).toEqual(content ?? []);
      expect(list.at(-1)?.content.text).toMatch(/not known what this tool call did.*the sidecar was stopped/);
      expect(closer?.payload).toMatchObject({ sessionUpdate: 'tool_call_update', toolCallId: 'c', status: 'failed' });
    }
  });

  it('[RE4] a pending approval: it is interrupted, and never answered', () => {
    const repaired = repairOf([started('t'), tool('t', 'c'), asked('c')]);
    expect(repaired.map(({ type }) => type)).toEqual(['update', 'approval_interrupted', 'turn_ended']);
    expect(repairOf([asked('c'), answered('c', selected('yes'))])).toEqual([]);
  });

  it('[RE4] a subagent that is marked running: an update that says it is not', () => {
    const announce = (state: object): Event => ({
      type: 'update',
      turnId: 't',
      payload: { sessionUpdate: 'subagent_update', sessionId: 'child', state },
    });
    const repaired = repairOf([started('t'), announce({ state: 'running' }), ended('t')]);
    expect(repaired.map(({ payload }) => payload)).toMatchObject([
      { sessionUpdate: 'subagent_update', sessionId: 'child', state: { state: 'idle', stopReason: 'cancelled' } },
    ]);
    expect(repairOf([announce({ state: 'running' }), announce({ state: 'idle' })])).toEqual([]);
  });
});

const ENDINGS: readonly (readonly Event[])[] = [
  [queued('t')],
  [queued('t'), started('t'), tool('t', 'c')],
  [queued('t'), started('t'), tool('t', 'c'), asked('c'), queued('u')],
  [started('t'), tool('t', 'c'), asked('c'), answered('c', selected('yes')), tool('t', 'd'), asked('d')],
];

describe('repair', () => {
  it('[RE1] twice is once, and cut off anywhere it is taken up again', () => {
    for (const events of ENDINGS) {
      const whole = repairEvents(fold(events), 'why');
      for (let cut = 0; cut <= whole.length; cut++) {
        const state = fold(events);
        const apply = (list: typeof whole): void => {
          for (const event of list) applyEvent(state, { ...event, seq: 1, payload: () => event.payload });
        };
        apply(whole.slice(0, cut));
        const rest = repairEvents(state, 'why');
        apply(rest);
        expect(repairEvents(state, 'why')).toEqual([]);
        expect([...whole.slice(0, cut), ...rest].map(({ type, toolCallId }) => [type, toolCallId])).toEqual(
          whole.map(({ type, toolCallId }) => [type, toolCallId]),
        );
      }
    }
  });

  it('[RE5] after the repaired view is the repair without it', () => {
    for (const events of ENDINGS) {
      const state = fold(events);
      const view = repairedView(state, events.length, 'why', 1);
      const appended = repairEvents(state, 'why');
      expect(view.map(({ payload }) => payload)).toEqual(appended.map(({ payload }) => payload));
      expect(view.map(({ seq }) => seq)).toEqual(appended.map((_, i) => events.length + 1 + i));
      expect(appended).toEqual(repairEvents(fold(events), 'why'));
    }
  });
});
