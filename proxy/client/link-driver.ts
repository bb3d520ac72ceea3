/** Gives a `ResumableLink` its transports and its time. */
import type { ClientTransport, OpenTransport, TransportEvents } from './client-transport.ts';
import { type PhaseTimes, PHASE_TIMES } from './link-phase.ts';
import { type LinkState, ResumableLink } from './resumable-link.ts';

export interface DriverOptions {
  readonly openTransport: OpenTransport;
  /** A message for the local side, wire text. */
  readonly onMessage: (wire: string) => void;
  readonly onState?: ((state: LinkState) => void) | undefined;
  /** 1 to 128 printable ASCII characters; a new random one by default. */
  readonly clientId?: string | undefined;
  readonly name?: string | undefined;
  readonly times?: Partial<PhaseTimes> | undefined;
  readonly random?: (() => number) | undefined;
}

/** Timers hold 31 bits of milliseconds. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

export class LinkDriver {
  readonly link: ResumableLink;
  readonly #options: DriverOptions;
  #transport: ClientTransport | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #paused = false;
  #ended = false;

  constructor(options: DriverOptions) {
    this.#options = options;
    const newId = (): string => crypto.randomUUID();
    this.link = new ResumableLink(
      {
        times: { ...PHASE_TIMES, ...options.times },
        clientId: options.clientId ?? newId(),
        name: options.name,
        random: options.random ?? Math.random,
        newId,
      },
      {
        local: options.onMessage,
        remote: (wire) => this.#transport?.send(wire),
        open: () => this.#open(),
        cut: () => this.#cut(),
        ping: () => this.#transport?.ping() ?? false,
        state: (state) => options.onState?.(state),
      },
      Date.now(),
    );
  }

  start(): void {
    this.link.start();
    this.#schedule();
  }

  /** A message of the local side, wire text. */
  send(wire: string): void {
    this.link.local(wire, Date.now());
    this.#schedule();
  }

  /** True when the local side should wait for `drained` before it sends more. */
  get congested(): boolean {
    const waiting = (this.#transport?.bufferedBytes ?? 0) > 4 * 1024 * 1024;
    return !this.#ended && (this.link.congested || waiting);
  }

  /** Resolves when there is room again. */
  drained(): Promise<void> {
    if (!this.congested) return Promise.resolve();
    return new Promise((resolve) => {
      const look = (): void => {
        if (!this.congested) resolve();
        else setTimeout(look, 20);
      };
      setTimeout(look, 20);
    });
  }

  /** The local side takes no more for now: nothing is read from the transport. */
  pause(): void {
    this.#paused = true;
    this.#transport?.pause();
  }

  resume(): void {
    if (!this.#paused) return;
    this.#paused = false;
    this.#transport?.resume();
    this.link.heard(Date.now());
    this.#schedule();
  }

  /** Ends in good order. What was sent is on its way; what was not is given up. */
  end(reason = 'closed'): void {
    if (this.#ended) return;
    const transport = this.#transport;
    this.#transport = undefined;
    transport?.close();
    this.link.end(reason);
    this.#schedule();
  }

  #open(): void {
    const own: { transport?: ClientTransport } = {};
    let over = false;
    const current = (): boolean => !over && (own.transport === undefined || this.#transport === own.transport);
    const then = (act: () => void): void => {
      if (!current()) return;
      act();
      this.#schedule();
    };
    const events: TransportEvents = {
      opened: () => then(() => this.link.opened(Date.now())),
      message: (wire) => {
        if (current()) this.link.remote(wire, Date.now());
      },
      alive: () => {
        if (current()) this.link.heard(Date.now());
      },
      closed: (end) =>
        then(() => {
          over = true;
          this.#transport = undefined;
          if (end.kind === 'refused') this.link.refused(end.reason, end.error);
          else this.link.lost(Date.now(), end.reason, end.code);
        }),
    };
    const transport = this.#options.openTransport(events);
    own.transport = transport;
    if (over) return;
    this.#transport = transport;
    if (this.#paused) transport.pause();
  }

  #cut(): void {
    const transport = this.#transport;
    this.#transport = undefined;
    transport?.cut();
  }

  #schedule(): void {
    clearTimeout(this.#timer);
    if (this.link.phase.name === 'ended') {
      this.#ended = true;
      return;
    }
    const at = this.link.wakeAt();
    if (at === undefined) return;
    this.#timer = setTimeout(this.#tick, Math.min(LONGEST_TIMER_MS, Math.max(0, at - Date.now())));
  }

  readonly #tick = (): void => {
    // Who does not read cannot hear: the silence is ours.
    if (this.#paused) this.link.heard(Date.now());
    this.link.tick(Date.now());
    this.#schedule();
  };
}
