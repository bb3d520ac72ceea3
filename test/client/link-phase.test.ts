import { describe, expect, it } from 'vitest';
import {
  PHASE_TIMES,
  type Phase,
  type PhaseEvent,
  type Step,
  backoffMs,
  step,
  wakeAt,
} from '../../proxy/client/link-phase.ts';

const TIMES = {
  ...PHASE_TIMES,
  heartbeatMs: 100,
  connectMs: 500,
  firstBackoffMs: 10,
  longestBackoffMs: 80,
  giveUpMs: 5000,
};
const OPEN = { attempt: 2, downSince: 0, heardAt: 1000, pingedAt: undefined };

const PHASES: { readonly [N in Phase['name']]: Extract<Phase, { name: N }> } = {
  connecting: { name: 'connecting', attempt: 2, at: 1000, downSince: 0 },
  waiting: { name: 'waiting', attempt: 2, until: 1100, downSince: 0 },
  greeting: { name: 'greeting', ...OPEN },
  resuming: { name: 'resuming', ...OPEN },
  live: { name: 'live', ...OPEN },
  ended: { name: 'ended', reason: 'over' },
};

const EVENTS: { readonly [T in PhaseEvent['type']]: Extract<PhaseEvent, { type: T }> } = {
  opened: { type: 'opened', now: 1050 },
  lost: { type: 'lost', now: 1050, random: 1, reason: 'cut' },
  refused: { type: 'refused', reason: '401' },
  heard: { type: 'heard', now: 1050 },
  initialised: { type: 'initialised' },
  resumed: { type: 'resumed' },
  tick: { type: 'tick', now: 2000, random: 1 },
  end: { type: 'end', reason: 'closed' },
};

type Outcome = `${Phase['name']}${'' | ' open' | ' cut' | ' ping'}` | 'same';

/** What each event makes of each phase. The compiler asks for every cell. */
const TABLE: { readonly [N in Phase['name']]: { readonly [T in PhaseEvent['type']]: Outcome } } = {
  connecting: {
    opened: 'greeting',
    lost: 'waiting',
    refused: 'ended',
    heard: 'same',
    initialised: 'same',
    resumed: 'same',
    tick: 'waiting cut',
    end: 'ended cut',
  },
  waiting: {
    opened: 'same',
    lost: 'same',
    refused: 'ended',
    heard: 'same',
    initialised: 'same',
    resumed: 'same',
    tick: 'connecting open',
    end: 'ended',
  },
  greeting: {
    opened: 'same',
    lost: 'waiting',
    refused: 'ended',
    heard: 'greeting',
    initialised: 'resuming',
    resumed: 'same',
    tick: 'greeting ping',
    end: 'ended cut',
  },
  resuming: {
    opened: 'same',
    lost: 'waiting',
    refused: 'ended',
    heard: 'resuming',
    initialised: 'same',
    resumed: 'live',
    tick: 'resuming ping',
    end: 'ended cut',
  },
  live: {
    opened: 'same',
    lost: 'waiting',
    refused: 'ended',
    heard: 'live',
    initialised: 'same',
    resumed: 'same',
    tick: 'live ping',
    end: 'ended cut',
  },
  ended: {
    opened: 'same',
    lost: 'same',
    refused: 'same',
    heard: 'same',
    initialised: 'same',
    resumed: 'same',
    tick: 'same',
    end: 'same',
  },
};

function outcome(before: Phase, { phase, actions }: Step): string {
  if (phase === before && actions.length === 0) return 'same';
  return [phase.name, ...actions].join(' ');
}

const cells = (Object.keys(TABLE) as Phase['name'][]).flatMap((name) =>
  (Object.keys(EVENTS) as PhaseEvent['type'][]).map((type) => [name, type, TABLE[name][type]] as const),
);

describe('the phases of a resumable connection', () => {
  it.each(cells)('%s + %s = %s', (name, type, expected) => {
    expect(outcome(PHASES[name], step(TIMES, PHASES[name], EVENTS[type]))).toBe(expected);
  });

  it('waits twice as long after each failure, up to the longest, between half of it and the whole', () => {
    expect([0, 1, 2, 3, 4, 60].map((attempt) => backoffMs(TIMES, attempt, 1))).toEqual([10, 20, 40, 80, 80, 80]);
    expect(backoffMs(TIMES, 3, 0)).toBe(40);
  });

  it('counts the attempts until it is live', () => {
    const waiting = step(TIMES, PHASES.connecting, EVENTS.lost).phase;
    expect(waiting).toMatchObject({ name: 'waiting', attempt: 3, until: 1050 + 40 });
    expect(step(TIMES, PHASES.resuming, EVENTS.resumed).phase).toMatchObject({ attempt: 0 });
  });

  it('[RC7] finds a silent peer within two heartbeats: one until the ping, one until it is given up', () => {
    expect(wakeAt(TIMES, PHASES.live)).toBe(1100);
    const pinged = step(TIMES, PHASES.live, { type: 'tick', now: 1100, random: 0 });
    expect(pinged.actions).toEqual(['ping']);
    expect(wakeAt(TIMES, pinged.phase)).toBe(1200);
    const lost = step(TIMES, pinged.phase, { type: 'tick', now: 1200, random: 0 });
    expect(outcome(pinged.phase, lost)).toBe('waiting cut');
    const answered = step(TIMES, pinged.phase, { type: 'heard', now: 1150 }).phase;
    expect(wakeAt(TIMES, answered)).toBe(1250);
  });

  it('a tick that comes early changes nothing', () => {
    for (const phase of Object.values(PHASES)) {
      expect(step(TIMES, phase, { type: 'tick', now: 1001, random: 0 }).phase).toBe(phase);
    }
  });

  it('gives up after its time without a connection, and only then', () => {
    const late = { type: 'lost', now: 5000, random: 0, reason: 'refused' } as const;
    expect(step(TIMES, PHASES.connecting, late).phase).toEqual({ name: 'ended', reason: 'refused' });
    expect(step(TIMES, PHASES.connecting, { ...late, now: 4999 }).phase.name).toBe('waiting');
    expect(step({ ...TIMES, giveUpMs: undefined }, PHASES.connecting, late).phase.name).toBe('waiting');
  });
});
