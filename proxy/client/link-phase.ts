/**
 * The phases of a resumable connection, as a pure function: the time and the random number come in with the event.
 *
 *   connecting --opened--> greeting --initialised--> resuming --resumed--> live
 *       ^  |                  |                          |                  |
 *       |  +----------- lost: closed, or silent for too long ---------------+
 *       |  v
 *     waiting (back-off with jitter)              any --refused, given up, end--> ended
 *
 * A peer is silent when nothing came for `heartbeatMs`; then it is pinged, and given up when nothing came for
 * another `heartbeatMs`. So a half-open connection is found within twice that time.
 */
export type Phase =
  | { readonly name: 'connecting'; readonly attempt: number; readonly at: number; readonly downSince: number }
  | { readonly name: 'waiting'; readonly attempt: number; readonly until: number; readonly downSince: number }
  | ({ readonly name: 'greeting' } & OpenPhase)
  | ({ readonly name: 'resuming' } & OpenPhase)
  | ({ readonly name: 'live' } & OpenPhase)
  | { readonly name: 'ended'; readonly reason: string };

interface OpenPhase {
  readonly attempt: number;
  /** When it was opened. */
  readonly downSince: number;
  readonly heardAt: number;
  readonly pingedAt: number | undefined;
}

export type PhaseEvent =
  | { readonly type: 'opened'; readonly now: number }
  | { readonly type: 'lost'; readonly now: number; readonly random: number; readonly reason: string }
  | { readonly type: 'refused'; readonly reason: string }
  | { readonly type: 'heard'; readonly now: number }
  | { readonly type: 'initialised' }
  | { readonly type: 'resumed' }
  | { readonly type: 'tick'; readonly now: number; readonly random: number }
  | { readonly type: 'end'; readonly reason: string };

export type PhaseAction = 'open' | 'cut' | 'ping';

export interface Step {
  readonly phase: Phase;
  readonly actions: readonly PhaseAction[];
}

/** All in milliseconds. */
export interface PhaseTimes {
  readonly heartbeatMs: number;
  readonly connectMs: number;
  readonly firstBackoffMs: number;
  readonly longestBackoffMs: number;
  /** Time without a live connection after which it is given up; undefined: never. */
  readonly giveUpMs: number | undefined;
}

export const PHASE_TIMES: PhaseTimes = {
  heartbeatMs: 15_000,
  connectMs: 10_000,
  firstBackoffMs: 100,
  longestBackoffMs: 10_000,
  giveUpMs: undefined,
};

export function firstPhase(now: number): Step {
  return { phase: { name: 'connecting', attempt: 0, at: now, downSince: now }, actions: ['open'] };
}

/** Between half of the wait and the whole, so that many clients of one server do not come back in step. */
export function backoffMs(times: PhaseTimes, attempt: number, random: number): number {
  const whole = Math.min(times.longestBackoffMs, times.firstBackoffMs * 2 ** Math.min(attempt, 30));
  return whole / 2 + (whole / 2) * random;
}

export function step(times: PhaseTimes, phase: Phase, event: PhaseEvent): Step {
  if (phase.name === 'ended') return stay(phase);
  switch (event.type) {
    case 'end':
      return { phase: { name: 'ended', reason: event.reason }, actions: phase.name === 'waiting' ? [] : ['cut'] };
    case 'refused':
      return { phase: { name: 'ended', reason: event.reason }, actions: [] };
    case 'lost':
      if (phase.name === 'waiting') return stay(phase);
      return wait(times, phase, event, []);
    case 'opened': {
      if (phase.name !== 'connecting') return stay(phase);
      const { attempt } = phase;
      return stay({ name: 'greeting', attempt, downSince: event.now, heardAt: event.now, pingedAt: undefined });
    }
    case 'heard':
      if (!isOpen(phase)) return stay(phase);
      return stay({ ...phase, heardAt: event.now, pingedAt: undefined });
    case 'initialised':
      return stay(phase.name === 'greeting' ? { ...phase, name: 'resuming' } : phase);
    case 'resumed':
      return stay(phase.name === 'resuming' ? { ...phase, name: 'live', attempt: 0 } : phase);
    case 'tick':
      return tick(times, phase, event);
  }
}

/** When `tick` has something to do; undefined: never. */
export function wakeAt(times: PhaseTimes, phase: Phase): number | undefined {
  switch (phase.name) {
    case 'connecting':
      return phase.at + times.connectMs;
    case 'waiting':
      return phase.until;
    case 'greeting':
    case 'resuming':
    case 'live':
      return (phase.pingedAt ?? phase.heardAt) + times.heartbeatMs;
    case 'ended':
      return undefined;
  }
}

export function isOpen(phase: Phase): phase is Extract<Phase, { name: 'greeting' | 'resuming' | 'live' }> {
  return phase.name === 'greeting' || phase.name === 'resuming' || phase.name === 'live';
}

function tick(
  times: PhaseTimes,
  phase: Exclude<Phase, { name: 'ended' }>,
  event: { now: number; random: number },
): Step {
  const { now, random } = event;
  if (now < (wakeAt(times, phase) ?? Number.POSITIVE_INFINITY)) return stay(phase);
  if (phase.name === 'waiting') {
    const { attempt, downSince } = phase;
    return { phase: { name: 'connecting', attempt, at: now, downSince }, actions: ['open'] };
  }
  if (phase.name === 'connecting') return wait(times, phase, { now, random, reason: 'no answer' }, ['cut']);
  if (phase.pingedAt === undefined) return { phase: { ...phase, pingedAt: now }, actions: ['ping'] };
  return wait(times, phase, { now, random, reason: 'the peer is silent' }, ['cut']);
}

function wait(
  times: PhaseTimes,
  phase: Exclude<Phase, { name: 'ended' | 'waiting' }>,
  event: { readonly now: number; readonly random: number; readonly reason: string },
  actions: readonly PhaseAction[],
): Step {
  const { now, random } = event;
  const downSince = phase.name === 'live' ? now : phase.downSince;
  if (times.giveUpMs !== undefined && now - downSince >= times.giveUpMs) {
    return { phase: { name: 'ended', reason: event.reason }, actions };
  }
  const until = now + backoffMs(times, phase.attempt, random);
  return { phase: { name: 'waiting', attempt: phase.attempt + 1, until, downSince }, actions };
}

function stay(phase: Phase): Step {
  return { phase, actions: [] };
}
