/**
 * One approval as a state machine. Pure: clients, answers and time come in with the events, and what has to be done
 * comes out as effects.
 *
 *            asked               recorded                 answered, cancelled, timed_out
 *   absent --------> recording ----------> pending ------------------------------------> resolving
 *                        |                    |                                              | settled
 *                        +--- agent_exited ---+---> interrupted <--- restarted               v
 *                                                        |                               resolved
 *   recording <------------ asked_again -----------------+------- asked_again --------------+
 *
 * `recording` and `resolving` wait for a commit: no client is asked before the question is durable, and the agent gets
 * no answer before that is. The only exception is a `cancelled` answer while nothing can be written: it is never consent.
 */

/** What a client's answer is worth: see `approval-answer.ts`. */
export type Verdict = 'valid' | 'invalid' | 'error' | 'cancelled';

export interface Decision<C, A> {
  readonly answer: A;
  readonly by: C | undefined;
  /** Stops the agent and consents to nothing. */
  readonly cancelled: boolean;
}

/** `spent`: it answered wrongly so often that it is asked no more until it attaches again. */
type CardStatus = 'asked' | 'error' | 'cancelled' | 'spent';
interface Card {
  readonly status: CardStatus;
  /** How often it has been asked. */
  readonly asks: number;
}
type Cards<C> = ReadonlyMap<C, Card>;

interface Absent {
  readonly phase: 'absent';
}
interface Recording {
  readonly phase: 'recording';
}
interface Pending<C, A> {
  readonly phase: 'pending';
  readonly cards: Cards<C>;
  readonly lastError: Decision<C, A> | undefined;
  readonly lastCancelled: Decision<C, A> | undefined;
}
interface Resolving<C, A> {
  readonly phase: 'resolving';
  readonly decision: Decision<C, A>;
  readonly cards: Cards<C>;
  readonly forwarded: boolean;
}
interface Resolved {
  readonly phase: 'resolved';
}
interface Interrupted {
  readonly phase: 'interrupted';
}
export type Approval<C, A> = Absent | Recording | Pending<C, A> | Resolving<C, A> | Resolved | Interrupted;
export type Phase = Approval<unknown, unknown>['phase'];

export type ApprovalEvent<C, A> =
  | { readonly type: 'asked' }
  /** The question, or its reopening, is durable. */
  | { readonly type: 'recorded' }
  | { readonly type: 'attached'; readonly client: C }
  /** A client that stays starts its view anew: `attached` follows. */
  | { readonly type: 'moved'; readonly client: C }
  | { readonly type: 'answered'; readonly client: C; readonly verdict: Verdict; readonly answer: A }
  | { readonly type: 'left'; readonly client: C }
  /** `session/cancel`, or the agent's own `$/cancel_request`. @param answer what the agent gets */
  | { readonly type: 'cancelled'; readonly answer: A }
  | { readonly type: 'timed_out'; readonly answer: A; readonly cancelled: boolean }
  /** The decision is durable. */
  | { readonly type: 'settled' }
  /** Nothing can be written at present. */
  | { readonly type: 'stalled' }
  | { readonly type: 'agent_exited' }
  /** The sidecar was killed and its log is read again. `durable`: the last record had been committed. */
  | { readonly type: 'restarted'; readonly durable: boolean }
  /**
   * The agent asks for the same call. `later`: in a later life than the one that asked first; `unused`: the log has no
   * event of the call behind its answer.
   */
  | { readonly type: 'asked_again'; readonly later: boolean; readonly unused: boolean };
export type EventType = ApprovalEvent<unknown, unknown>['type'];

export type Effect<C, A> =
  | {
      readonly do: 'record';
      readonly event: 'approval_requested' | 'approval_reopened' | 'approval_resolved' | 'approval_interrupted';
    }
  | { readonly do: 'ask'; readonly client: C; readonly again: boolean }
  | { readonly do: 'withdraw'; readonly client: C }
  | { readonly do: 'forward'; readonly decision: Decision<C, A> }
  /** The agent's question is another approval: make a new one. */
  | { readonly do: 'separate' };

export interface Context<C> {
  /** Attached controllers that can be asked, the best first. */
  readonly eligible: readonly C[];
  /** `one`: a single client at a time; `all`: everyone. */
  readonly ask: 'all' | 'one';
  /** Nothing can be written at present. */
  readonly stalled: boolean;
}

export interface Step<C, A> {
  readonly state: Approval<C, A>;
  readonly effects: readonly Effect<C, A>[];
}

/** A wrong answer is asked again at once so often, then on the client's next attach. */
export const ASKED_AGAIN = 3;

type Cell<C, A, P extends Phase, E extends EventType> = (
  state: Extract<Approval<C, A>, { phase: P }>,
  event: Extract<ApprovalEvent<C, A>, { type: E }>,
  context: Context<C>,
) => Step<C, A>;

/** Every phase with every event: the compiler refuses a table with a hole. */
type Table<C, A> = { readonly [P in Phase]: { readonly [E in EventType]: Cell<C, A, P, E> } };

const stay = <C, A>(state: Approval<C, A>): Step<C, A> => ({ state, effects: [] });
const separate = <C, A>(state: Approval<C, A>): Step<C, A> => ({ state, effects: [{ do: 'separate' }] });
const record = <C, A>(
  state: Approval<C, A>,
  event: Extract<Effect<C, A>, { do: 'record' }>['event'],
  more: readonly Effect<C, A>[] = [],
): Step<C, A> => ({ state, effects: [{ do: 'record', event }, ...more] });
const reopen = <C, A>(): Step<C, A> => record({ phase: 'recording' }, 'approval_reopened');

const FRESH = {
  phase: 'pending',
  cards: new Map<never, never>(),
  lastError: undefined,
  lastCancelled: undefined,
} as const;

function table<C, A>(): Table<C, A> {
  return {
    absent: {
      asked: () => record({ phase: 'recording' }, 'approval_requested'),
      recorded: stay,
      attached: stay,
      moved: stay,
      answered: stay,
      left: stay,
      cancelled: stay,
      timed_out: stay,
      settled: stay,
      stalled: stay,
      agent_exited: stay,
      restarted: stay,
      asked_again: separate,
    },
    recording: {
      asked: stay,
      recorded: (_state, _event, context) => askNext(FRESH, context),
      attached: stay,
      moved: stay,
      // Nobody has been asked yet.
      answered: stay,
      left: stay,
      cancelled: (_state, { answer }, context) => decide(new Map(), cancelledBy(answer), context),
      timed_out: stay,
      settled: stay,
      stalled: stay,
      agent_exited: () => record({ phase: 'interrupted' }, 'approval_interrupted'),
      restarted: (_state, { durable }) =>
        durable ? record({ phase: 'interrupted' }, 'approval_interrupted') : stay({ phase: 'absent' }),
      asked_again: separate,
    },
    pending: {
      asked: stay,
      recorded: stay,
      attached: (state, { client }, context) => attach(state, client, context),
      moved: (state, { client }) => ({
        state: { ...state, cards: without(state.cards, client) },
        effects: state.cards.get(client)?.status === 'asked' ? [{ do: 'withdraw', client }] : [],
      }),
      answered: answer,
      left: (state, { client }, context) => {
        if (!state.cards.has(client)) return stay(state);
        return settleOrAsk({ ...state, cards: without(state.cards, client) }, context);
      },
      cancelled: (state, { answer: text }, context) => decide(state.cards, cancelledBy(text), context),
      timed_out: (state, { answer: text, cancelled }, context) =>
        decide(state.cards, { answer: text, by: undefined, cancelled }, context),
      settled: stay,
      stalled: stay,
      agent_exited: (state) => record({ phase: 'interrupted' }, 'approval_interrupted', withdrawals(state.cards)),
      restarted: () => record({ phase: 'interrupted' }, 'approval_interrupted'),
      asked_again: separate,
    },
    resolving: {
      asked: stay,
      recorded: stay,
      attached: stay,
      moved: (state, { client }) => ({
        state: { ...state, cards: without(state.cards, client) },
        effects: state.cards.get(client)?.status === 'asked' ? [{ do: 'withdraw', client }] : [],
      }),
      // The first answer counts.
      answered: (state, { client }) => stay({ ...state, cards: without(state.cards, client) }),
      left: (state, { client }) => stay({ ...state, cards: without(state.cards, client) }),
      cancelled: stay,
      timed_out: stay,
      settled: (state) => ({
        state: { phase: 'resolved' },
        effects: [...(state.forwarded ? [] : [forward<C, A>(state.decision)]), ...withdrawals<C, A>(state.cards)],
      }),
      stalled: (state) => {
        if (state.forwarded || !state.decision.cancelled) return stay(state);
        return { state: { ...state, forwarded: true }, effects: [forward(state.decision)] };
      },
      // What was decided is still recorded; nobody is left to be told.
      agent_exited: (state) => ({
        state: { ...state, cards: new Map(), forwarded: true },
        effects: withdrawals(state.cards),
      }),
      // The commit came or it did not; then the question is as open as before.
      restarted: (_state, { durable }) =>
        durable ? stay({ phase: 'resolved' }) : record({ phase: 'interrupted' }, 'approval_interrupted'),
      asked_again: separate,
    },
    resolved: {
      asked: stay,
      recorded: stay,
      attached: stay,
      moved: stay,
      answered: stay,
      left: stay,
      cancelled: stay,
      timed_out: stay,
      settled: stay,
      stalled: stay,
      agent_exited: stay,
      restarted: stay,
      asked_again: (state, { later, unused }) => (later && unused ? reopen() : separate(state)),
    },
    interrupted: {
      asked: stay,
      recorded: stay,
      attached: stay,
      moved: stay,
      answered: stay,
      left: stay,
      cancelled: stay,
      timed_out: stay,
      settled: stay,
      stalled: stay,
      agent_exited: stay,
      restarted: stay,
      asked_again: (state, { later }) => (later ? reopen() : separate(state)),
    },
  };
}

const TABLE: Table<unknown, unknown> = table();

/** What an event does to an approval. */
export function stepApproval<C, A>(state: Approval<C, A>, event: ApprovalEvent<C, A>, context: Context<C>): Step<C, A> {
  // The table is the same for all types of client and answer; it only hands them through.
  const cell = TABLE[state.phase][event.type] as (
    from: Approval<C, A>,
    with_: ApprovalEvent<C, A>,
    around: Context<C>,
  ) => Step<C, A>;
  return cell(state, event, context);
}

function attach<C, A>(state: Pending<C, A>, client: C, context: Context<C>): Step<C, A> {
  if (!context.eligible.includes(client)) return stay(state);
  if (context.ask === 'one') return askNext({ ...state, cards: without(state.cards, client) }, context);
  return ask(state, [client], false);
}

function answer<C, A>(
  state: Pending<C, A>,
  event: Extract<ApprovalEvent<C, A>, { type: 'answered' }>,
  context: Context<C>,
): Step<C, A> {
  const { client, verdict, answer: text } = event;
  const card = state.cards.get(client);
  if (card?.status !== 'asked') return stay(state);
  const answered = (status: CardStatus): Cards<C> => new Map(state.cards).set(client, { ...card, status });
  switch (verdict) {
    case 'valid':
      return decide(without(state.cards, client), { answer: text, by: client, cancelled: false }, context);
    case 'invalid':
      if (card.asks <= ASKED_AGAIN) return ask(state, [client], true);
      return settleOrAsk({ ...state, cards: answered('spent') }, context);
    case 'error': {
      const lastError = { answer: text, by: client, cancelled: false };
      return settleOrAsk({ ...state, cards: answered('error'), lastError }, context);
    }
    case 'cancelled': {
      const alone = context.ask === 'one' || context.eligible.every((other) => other === client);
      const decision = { answer: text, by: client, cancelled: true };
      if (alone) return decide(without(state.cards, client), decision, context);
      return settleOrAsk({ ...state, cards: answered('cancelled'), lastCancelled: decision }, context);
    }
    default:
      return stay(state);
  }
}

/**
 * When nobody is left who may still answer, the last word counts: `cancelled` if one of them said so, else the last
 * error. Nobody at all, or one that only answered wrongly: it waits.
 */
function settleOrAsk<C, A>(state: Pending<C, A>, context: Context<C>): Step<C, A> {
  const asked = askNext(state, context);
  if (asked.effects.length > 0) return asked;
  const cards = [...state.cards.values()];
  if (cards.length === 0 || cards.some(({ status }) => status === 'asked' || status === 'spent')) return stay(state);
  const stopped = cards.some(({ status }) => status === 'cancelled');
  const decision = stopped ? state.lastCancelled : state.lastError;
  return decision ? decide(state.cards, decision, context) : stay(state);
}

/** Asks who has not been asked: all of them, or the best when nobody is being asked. */
function askNext<C, A>(state: Pending<C, A>, context: Context<C>): Step<C, A> {
  const fresh = context.eligible.filter((client) => !state.cards.has(client));
  if (context.ask === 'all') return ask(state, fresh, false);
  const busy = [...state.cards.values()].some(({ status }) => status === 'asked');
  return ask(state, busy ? [] : fresh.slice(0, 1), false);
}

function ask<C, A>(state: Pending<C, A>, clients: readonly C[], again: boolean): Step<C, A> {
  const cards = new Map(state.cards);
  for (const client of clients) {
    cards.set(client, { status: 'asked', asks: again ? (cards.get(client)?.asks ?? 0) + 1 : 1 });
  }
  return { state: { ...state, cards }, effects: clients.map((client) => ({ do: 'ask', client, again })) };
}

function decide<C, A>(cards: Cards<C>, decision: Decision<C, A>, context: Context<C>): Step<C, A> {
  // A cancelled answer is never consent: on a full disk the agent need not wait until it is written.
  const early = decision.cancelled && context.stalled;
  const state: Approval<C, A> = { phase: 'resolving', decision, cards, forwarded: early };
  return record(state, 'approval_resolved', early ? [forward(decision)] : []);
}

function cancelledBy<C, A>(text: A): Decision<C, A> {
  return { answer: text, by: undefined, cancelled: true };
}

function forward<C, A>(decision: Decision<C, A>): Effect<C, A> {
  return { do: 'forward', decision };
}

function withdrawals<C, A>(cards: Cards<C>): Effect<C, A>[] {
  return [...cards].flatMap(([client, { status }]): Effect<C, A>[] =>
    status === 'asked' ? [{ do: 'withdraw', client }] : [],
  );
}

function without<C>(cards: Cards<C>, client: C): Cards<C> {
  const rest = new Map(cards);
  rest.delete(client);
  return rest;
}
