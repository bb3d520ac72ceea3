/** Every state of an approval with everything that can happen to it, and what random sequences may never do. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type Approval,
  type ApprovalEvent,
  ASKED_AGAIN,
  type Context,
  type Effect,
  type Phase,
  type Step,
  type Verdict,
  stepApproval,
} from '../../protocol/approval.ts';
import { propertyRuns } from '../support/properties.ts';

type Client = 'A' | 'B';
type State = Approval<Client, string>;
type Event = ApprovalEvent<Client, string>;

/** What can happen, as the events that it is; `left` names who is not there any more. */
const HAPPENINGS = {
  asked: [{ type: 'asked' }],
  recorded: [{ type: 'recorded' }],
  answered: [answered('A', 'valid')],
  'answered again': [answered('A', 'valid'), answered('B', 'valid')],
  'wrong option': [answered('A', 'invalid')],
  'error answer': [answered('A', 'error')],
  'error answer of everyone': [answered('A', 'error'), answered('B', 'error')],
  'cancelled by one of several': [answered('A', 'cancelled')],
  'cancelled by one, an error of the other': [answered('A', 'cancelled'), answered('B', 'error')],
  'client gone': [{ type: 'left', client: 'A' }],
  'all gone': [
    { type: 'left', client: 'A' },
    { type: 'left', client: 'B' },
  ],
  'client back': [
    { type: 'moved', client: 'A' },
    { type: 'attached', client: 'A' },
  ],
  cancel: [{ type: 'cancelled', answer: 'stop' }],
  timeout: [{ type: 'timed_out', answer: 'reject', cancelled: false }],
  settled: [{ type: 'settled' }],
  'disk full': [{ type: 'stalled' }],
  'agent exit': [{ type: 'agent_exited' }],
  'sidecar killed before the commit': [{ type: 'restarted', durable: false }],
  'sidecar killed after the commit': [{ type: 'restarted', durable: true }],
  'asked again for the same call': [{ type: 'asked_again', later: true, unused: true }],
  'asked again after the agent went on': [{ type: 'asked_again', later: true, unused: false }],
  'asked again in the same life, or for a new call': [{ type: 'asked_again', later: false, unused: true }],
} as const satisfies Record<string, readonly Event[]>;

type Happening = keyof typeof HAPPENINGS;
/** The phase after it, and the effects in order. */
type Outcome = readonly [Phase, ...string[]];

const pendingCards = new Map([
  ['A', { status: 'asked', asks: 1 }],
  ['B', { status: 'asked', asks: 1 }],
] as const);

/** Each phase as it is met: A and B are attached controllers, and in `resolving` A's answer waits for its commit. */
const STATES: { readonly [P in Phase]: Extract<State, { phase: P }> } = {
  absent: { phase: 'absent' },
  recording: { phase: 'recording' },
  pending: { phase: 'pending', cards: pendingCards, lastError: undefined, lastCancelled: undefined },
  resolving: {
    phase: 'resolving',
    decision: { answer: 'A valid', by: 'A', cancelled: false },
    cards: new Map([['B', { status: 'asked', asks: 1 }]]),
    forwarded: false,
  },
  resolved: { phase: 'resolved' },
  interrupted: { phase: 'interrupted' },
};

const SEPARATE = 'separate';

/** What must come of it. The compiler refuses a table with a hole. */
const TABLE: { readonly [P in Phase]: { readonly [H in Happening]: Outcome } } = {
  absent: {
    asked: ['recording', 'record approval_requested'],
    recorded: ['absent'],
    answered: ['absent'],
    'answered again': ['absent'],
    'wrong option': ['absent'],
    'error answer': ['absent'],
    'error answer of everyone': ['absent'],
    'cancelled by one of several': ['absent'],
    'cancelled by one, an error of the other': ['absent'],
    'client gone': ['absent'],
    'all gone': ['absent'],
    'client back': ['absent'],
    cancel: ['absent'],
    timeout: ['absent'],
    settled: ['absent'],
    'disk full': ['absent'],
    'agent exit': ['absent'],
    'sidecar killed before the commit': ['absent'],
    'sidecar killed after the commit': ['absent'],
    'asked again for the same call': ['absent', SEPARATE],
    'asked again after the agent went on': ['absent', SEPARATE],
    'asked again in the same life, or for a new call': ['absent', SEPARATE],
  },
  // Nobody has been asked: nothing that clients do can matter.
  recording: {
    asked: ['recording'],
    recorded: ['pending', 'ask A', 'ask B'],
    answered: ['recording'],
    'answered again': ['recording'],
    'wrong option': ['recording'],
    'error answer': ['recording'],
    'error answer of everyone': ['recording'],
    'cancelled by one of several': ['recording'],
    'cancelled by one, an error of the other': ['recording'],
    'client gone': ['recording'],
    'all gone': ['recording'],
    'client back': ['recording'],
    cancel: ['resolving', 'record approval_resolved'],
    timeout: ['recording'],
    settled: ['recording'],
    'disk full': ['recording'],
    'agent exit': ['interrupted', 'record approval_interrupted'],
    'sidecar killed before the commit': ['absent'],
    'sidecar killed after the commit': ['interrupted', 'record approval_interrupted'],
    'asked again for the same call': ['recording', SEPARATE],
    'asked again after the agent went on': ['recording', SEPARATE],
    'asked again in the same life, or for a new call': ['recording', SEPARATE],
  },
  pending: {
    asked: ['pending'],
    recorded: ['pending'],
    answered: ['resolving', 'record approval_resolved'],
    'answered again': ['resolving', 'record approval_resolved'],
    'wrong option': ['pending', 'ask A again'],
    'error answer': ['pending'],
    'error answer of everyone': ['resolving', 'record approval_resolved'],
    'cancelled by one of several': ['pending'],
    'cancelled by one, an error of the other': ['resolving', 'record approval_resolved'],
    'client gone': ['pending'],
    'all gone': ['pending'],
    'client back': ['pending', 'withdraw A', 'ask A'],
    cancel: ['resolving', 'record approval_resolved'],
    timeout: ['resolving', 'record approval_resolved'],
    settled: ['pending'],
    'disk full': ['pending'],
    'agent exit': ['interrupted', 'record approval_interrupted', 'withdraw A', 'withdraw B'],
    'sidecar killed before the commit': ['interrupted', 'record approval_interrupted'],
    'sidecar killed after the commit': ['interrupted', 'record approval_interrupted'],
    'asked again for the same call': ['pending', SEPARATE],
    'asked again after the agent went on': ['pending', SEPARATE],
    'asked again in the same life, or for a new call': ['pending', SEPARATE],
  },
  // The first answer counts, and the agent hears of it when it is durable.
  resolving: {
    asked: ['resolving'],
    recorded: ['resolving'],
    answered: ['resolving'],
    'answered again': ['resolving'],
    'wrong option': ['resolving'],
    'error answer': ['resolving'],
    'error answer of everyone': ['resolving'],
    'cancelled by one of several': ['resolving'],
    'cancelled by one, an error of the other': ['resolving'],
    'client gone': ['resolving'],
    'all gone': ['resolving'],
    'client back': ['resolving'],
    cancel: ['resolving'],
    timeout: ['resolving'],
    settled: ['resolved', 'forward A valid', 'withdraw B'],
    'disk full': ['resolving'],
    'agent exit': ['resolving', 'withdraw B'],
    'sidecar killed before the commit': ['interrupted', 'record approval_interrupted'],
    'sidecar killed after the commit': ['resolved'],
    'asked again for the same call': ['resolving', SEPARATE],
    'asked again after the agent went on': ['resolving', SEPARATE],
    'asked again in the same life, or for a new call': ['resolving', SEPARATE],
  },
  resolved: {
    asked: ['resolved'],
    recorded: ['resolved'],
    answered: ['resolved'],
    'answered again': ['resolved'],
    'wrong option': ['resolved'],
    'error answer': ['resolved'],
    'error answer of everyone': ['resolved'],
    'cancelled by one of several': ['resolved'],
    'cancelled by one, an error of the other': ['resolved'],
    'client gone': ['resolved'],
    'all gone': ['resolved'],
    'client back': ['resolved'],
    cancel: ['resolved'],
    timeout: ['resolved'],
    settled: ['resolved'],
    'disk full': ['resolved'],
    'agent exit': ['resolved'],
    'sidecar killed before the commit': ['resolved'],
    'sidecar killed after the commit': ['resolved'],
    'asked again for the same call': ['recording', 'record approval_reopened'],
    'asked again after the agent went on': ['resolved', SEPARATE],
    'asked again in the same life, or for a new call': ['resolved', SEPARATE],
  },
  interrupted: {
    asked: ['interrupted'],
    recorded: ['interrupted'],
    answered: ['interrupted'],
    'answered again': ['interrupted'],
    'wrong option': ['interrupted'],
    'error answer': ['interrupted'],
    'error answer of everyone': ['interrupted'],
    'cancelled by one of several': ['interrupted'],
    'cancelled by one, an error of the other': ['interrupted'],
    'client gone': ['interrupted'],
    'all gone': ['interrupted'],
    'client back': ['interrupted'],
    cancel: ['interrupted'],
    timeout: ['interrupted'],
    settled: ['interrupted'],
    'disk full': ['interrupted'],
    'agent exit': ['interrupted'],
    'sidecar killed before the commit': ['interrupted'],
    'sidecar killed after the commit': ['interrupted'],
    'asked again for the same call': ['recording', 'record approval_reopened'],
    'asked again after the agent went on': ['recording', 'record approval_reopened'],
    'asked again in the same life, or for a new call': ['interrupted', SEPARATE],
  },
};

function answered(client: Client, verdict: Verdict): Extract<Event, { type: 'answered' }> {
  return { type: 'answered', client, verdict, answer: `${client} ${verdict}` };
}

function told(effect: Effect<Client, string>): string {
  switch (effect.do) {
    case 'record':
      return `record ${effect.event}`;
    case 'ask':
      return `ask ${effect.client}${effect.again ? ' again' : ''}`;
    case 'withdraw':
      return `withdraw ${effect.client}`;
    case 'forward':
      return `forward ${effect.decision.answer}`;
    case 'separate':
      return SEPARATE;
    default:
      return effect satisfies never;
  }
}

function run(
  from: State,
  events: readonly Event[],
  more: Partial<Context<Client>> = {},
): { state: State; effects: string[] } {
  let state = from;
  const here = new Set<Client>(more.eligible ?? ['A', 'B']);
  const effects: string[] = [];
  for (const event of events) {
    if (event.type === 'left') here.delete(event.client);
    const context: Context<Client> = { ask: 'all', stalled: false, ...more, eligible: [...here] };
    const step = stepApproval(state, event, context);
    ({ state } = step);
    effects.push(...step.effects.map(told));
  }
  return { state, effects };
}

describe.each(Object.entries(TABLE))('%s', (phase, row) => {
  it.each(Object.entries(row))('%s', (happening, [after, ...effects]) => {
    const result = run(STATES[phase as Phase], HAPPENINGS[happening as Happening]);
    expect(result.state.phase).toBe(after);
    expect(result.effects).toEqual(effects);
  });
});

describe('who is asked', () => {
  const recorded: Event = { type: 'recorded' };
  const recording: State = { phase: 'recording' };

  it('nobody attached: it waits, and whoever comes is asked', () => {
    const alone = run(recording, [recorded], { eligible: [] });
    expect(alone.effects).toEqual([]);
    expect(run(alone.state, [{ type: 'attached', client: 'B' }]).effects).toEqual(['ask B']);
  });

  it('one at a time: the next one when the first leaves, cannot, or has answered wrongly too often', () => {
    const one = { ask: 'one' } as const;
    const first = run(recording, [recorded], one);
    expect(first.effects).toEqual(['ask A']);
    expect(run(first.state, [{ type: 'left', client: 'A' }], one).effects).toEqual(['ask B']);
    expect(run(first.state, [answered('A', 'error')], one).effects).toEqual(['ask B']);
    const wrong = Array.from({ length: ASKED_AGAIN + 1 }, () => answered('A', 'invalid'));
    expect(run(first.state, wrong, one).effects).toEqual(['ask A again', 'ask A again', 'ask A again', 'ask B']);
    expect(run(first.state, [answered('A', 'cancelled')], one).state.phase).toBe('resolving');
  });

  it('[AP4] a wrong answer is asked again three times, then no more until the client attaches again', () => {
    const alone = { eligible: ['A'] } as const;
    const first = run(recording, [recorded], alone);
    const wrong = Array.from({ length: ASKED_AGAIN + 1 }, () => answered('A', 'invalid'));
    const spent = run(first.state, wrong, alone);
    expect(spent.effects).toEqual(['ask A again', 'ask A again', 'ask A again']);
    expect(run(spent.state, [answered('A', 'valid')], alone).state.phase).toBe('pending');
    const back = run(
      spent.state,
      [
        { type: 'moved', client: 'A' },
        { type: 'attached', client: 'A' },
      ],
      alone,
    );
    expect(back.effects).toEqual(['ask A']);
    expect(run(back.state, [answered('A', 'valid')], alone).state.phase).toBe('resolving');
  });

  it('the last error counts when the one that had not answered leaves; cancelled goes before errors', () => {
    const waiting = run(recording, [recorded]);
    const error = run(waiting.state, [answered('A', 'error'), { type: 'left', client: 'B' }]);
    expect(error.state).toMatchObject({
      phase: 'resolving',
      decision: { answer: 'A error', by: 'A', cancelled: false },
    });
    const stopped = run(waiting.state, [answered('A', 'cancelled'), answered('B', 'error')]);
    expect(stopped.state).toMatchObject({ phase: 'resolving', decision: { answer: 'A cancelled', cancelled: true } });
  });

  it('[AP3] while nothing can be written a cancelled answer goes to the agent at once, and a yes never', () => {
    const waiting = run(recording, [recorded]);
    const stalled = { stalled: true } as const;
    expect(run(waiting.state, HAPPENINGS.cancel, stalled).effects).toEqual([
      'record approval_resolved',
      'forward stop',
    ]);
    const late = run(waiting.state, [
      ...HAPPENINGS.cancel,
      { type: 'stalled' },
      { type: 'stalled' },
      { type: 'settled' },
    ]);
    expect(late.effects.filter((effect) => effect.startsWith('forward'))).toEqual(['forward stop']);
    const yes = run(waiting.state, [answered('A', 'valid'), { type: 'stalled' }], stalled);
    expect(yes.effects).toEqual(['record approval_resolved']);
  });
});

describe('random sequences', () => {
  const client = fc.constantFrom<Client>('A', 'B');
  const event: fc.Arbitrary<Event> = fc.oneof(
    fc.constantFrom<Event>(
      { type: 'asked' },
      { type: 'recorded' },
      { type: 'settled' },
      { type: 'stalled' },
      { type: 'agent_exited' },
      { type: 'cancelled', answer: 'stop' },
      { type: 'timed_out', answer: 'reject', cancelled: false },
    ),
    client.map((who): Event => ({ type: 'left', client: who })),
    client.map((who): Event => ({ type: 'attached', client: who })),
    fc
      .tuple(client, fc.constantFrom<Verdict>('valid', 'invalid', 'error', 'cancelled'))
      .map(([who, verdict]): Event => answered(who, verdict)),
    fc.record({ later: fc.boolean(), unused: fc.boolean() }).map((facts): Event => ({ type: 'asked_again', ...facts })),
  );

  it('a question is answered at most once, after its record; a card is live at most once a client', () => {
    const property = fc.property(fc.array(event, { maxLength: 60 }), fc.constantFrom('all', 'one'), (events, ask) => {
      let state: State = { phase: 'absent' };
      let forwarded = 0;
      const live = new Set<Client>();
      const here = new Set<Client>(['A', 'B']);
      for (const next of events) {
        if (next.type === 'left') {
          here.delete(next.client);
          live.delete(next.client);
        }
        // As the session does it: a client attaches after its old card was withdrawn.
        if (next.type === 'attached') {
          if (live.has(next.client)) continue;
          here.add(next.client);
        }
        if (next.type === 'answered' && !live.delete(next.client)) continue;
        const before: State = state;
        const step: Step<Client, string> = stepApproval<Client, string>(state, next, {
          eligible: [...here],
          ask,
          stalled: false,
        });
        for (const effect of step.effects) {
          if (effect.do === 'record' && effect.event !== 'approval_resolved') forwarded = 0;
          if (effect.do === 'forward') {
            forwarded++;
            const early = next.type !== 'settled';
            expect(!early || effect.decision.cancelled).toBe(true);
            expect(before.phase).toBe('resolving');
          }
          if (effect.do === 'ask') {
            expect(live.has(effect.client)).toBe(false);
            expect(here.has(effect.client)).toBe(true);
            live.add(effect.client);
          }
          if (effect.do === 'withdraw') live.delete(effect.client);
        }
        expect(forwarded).toBeLessThanOrEqual(1);
        if (ask === 'one' && step.state.phase === 'pending') expect(live.size).toBeLessThanOrEqual(1);
        ({ state } = step);
        if (state.phase === 'resolved' || state.phase === 'interrupted') expect(live.size).toBe(0);
      }
    });
    fc.assert(property, propertyRuns(2000));
  });
});
