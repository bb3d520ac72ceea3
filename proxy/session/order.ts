/**
 * One writer, one order: everything that happens to a session passes here.
 *
 *      append() / text() / note()
 *                |
 *                v
 *   [ durable events 1..head ] [ items: waiting for their commit ] [ open run ]
 *                                 ^ group commit takes from the front
 *
 * - An event becomes visible when its commit has settled. Its effects (an answer, a forwarded prompt) run then.
 * - The text at `head + 1` may be read by clients before it is an event: that is the front run. Text behind an
 *   uncommitted event waits, because its cursor would promise that event.
 * - A note is something transient that keeps its place in the order: it is published when everything before it is
 *   visible.
 */
import { type EventFields } from '../../protocol/event.ts';
import type { Position } from '../../protocol/event-id.ts';
import { encodeRecord } from '../../storage/event-codec.ts';
import type { CommitOutcome, SessionRow } from '../../storage/event-log.ts';
import type { AppendSource } from '../../storage/group-commit.ts';
import { varies } from './client-view.ts';
import { RecentRecords } from './recent-records.ts';
import { RUN_BYTES, RUN_MS, Run, type TextShape } from './run.ts';

export interface AppendOptions {
  /** Kind of update, for `update` events. */
  readonly kind?: number;
  /** Runs when the event is durable, before any client is served further. */
  readonly settled?: (seq: number) => void;
  /**
   * The event may be given up when the disk is full, and this is told. Only for what nothing depends on yet: a new
   * prompt, a new session.
   */
  readonly refused?: (message: string) => void;
  /** The log ends here: what comes behind waits, is given up when this is durable, and goes on when it is refused. */
  readonly last?: boolean;
}

type Note = (at: Position) => void;

interface Item {
  readonly record: Buffer;
  readonly run?: Run;
  /** Notes that stand inside the run's text, by offset. */
  readonly inside: { offset: number; note: Note }[];
  readonly behind: Note[];
  readonly settled?: ((seq: number) => void) | undefined;
  readonly refused?: ((message: string) => void) | undefined;
  readonly last?: boolean | undefined;
}

export interface OrderOptions {
  readonly num: number;
  readonly head: number;
  readonly boot: string;
  readonly now: () => number;
  /** Shared by all sessions: the bytes that wait for their commit. */
  readonly backlog: { bytes: number };
  /** Something is to be committed or shown; called often, cheap, coalesced by the owner. */
  readonly touched: () => void;
  /** The commit of the front has failed for want of space, or works again. */
  readonly stalled: (message: string | undefined) => void;
  /** The event that was to have this seq was given up: those behind it move up by one. */
  readonly movedUp: (seq: number) => void;
}

/** What the open run of a session may hold while the disk is full. */
const STALLED_RUN_BYTES = 16 * 1024 * 1024;
const RETRY_MS = 1000;

export class Order implements AppendSource {
  readonly num: number;
  readonly #options: OrderOptions;
  #head: number;
  #items: Item[] = [];
  #run: Run | undefined;
  #runNotes: { offset: number; note: Note }[] = [];
  #row: SessionRow | undefined;
  #queuedBytes = 0;
  #runBytes = 0;
  readonly #recent = new RecentRecords();
  #published: { item: Item; seq: number }[] = [];
  #stalled = false;
  #ended = false;
  /** How many items the next commit takes. */
  #peeked = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: OrderOptions) {
    this.#options = options;
    this.num = options.num;
    this.#head = options.head;
  }

  /** The last durable seq. */
  get head(): number {
    return this.#head;
  }

  /** Bytes that wait for their commit. */
  get queuedBytes(): number {
    return this.#queuedBytes;
  }

  get stalled(): boolean {
    return this.#stalled;
  }

  /** Its last event is durable: nothing is taken any more. */
  get ended(): boolean {
    return this.#ended;
  }

  /** The seq that the last event behind `append` gets, unless something before it is refused. */
  get lastSeq(): number {
    return this.#head + this.#items.length;
  }

  /** True when nothing waits and no run is open. */
  get quiet(): boolean {
    return this.#items.length === 0 && this.#run === undefined;
  }

  get openRun(): Run | undefined {
    return this.#run;
  }

  /** The text at `head + 1` that clients may see although it is not an event yet. */
  get front(): Run | undefined {
    const first = this.#items[0];
    return first ? first.run : this.#run;
  }

  /** Where a client stands that has seen everything that may be seen. */
  get tip(): Position {
    return { seq: this.#head, offset: this.front?.length ?? 0 };
  }

  /** A committed record that is still at hand. */
  recent(seq: number): Buffer | undefined {
    return this.#recent.get(seq);
  }

  /** Appends an event behind everything that is there; an open run is settled first. */
  append(event: EventFields, options: AppendOptions = {}): void {
    if (this.#ended) return;
    this.closeRun();
    const { kind = 0, settled, refused, last } = options;
    const record = encodeRecord(event, {
      boot: this.#options.boot,
      kind,
      varies: event.type === 'update' && varies(kind, event.payload),
    });
    this.#push({ record, inside: [], behind: [], settled, refused, last });
  }

  /** Adds text to the open run when it has this shape, else opens one. */
  text(shape: TextShape, body: string, turnId: string | undefined): void {
    if (this.#ended) return;
    let run = this.#run;
    if (!run || (run.shape !== shape && run.shape.key !== shape.key)) {
      this.closeRun();
      run = new Run(shape, this.#options.boot, this.#options.now(), turnId);
      this.#run = run;
      this.#timer ??= setTimeout(this.#onTimer, RUN_MS);
    }
    run.append(body);
    // While the disk is full a run stays open: what cannot be written should not become many records.
    if (run.length >= RUN_BYTES) {
      if (!this.#stalled) this.closeRun();
      else if (run.length > STALLED_RUN_BYTES) this.#queuedRun(run.length);
    }
    this.#options.touched();
  }

  /** Settles the open run: it becomes the next event. */
  closeRun(): void {
    const run = this.#run;
    if (!run) return;
    this.#run = undefined;
    this.#queuedRun(0);
    const inside = this.#runNotes;
    this.#runNotes = [];
    this.#push({ record: run.seal(), run, inside, behind: [] });
  }

  /** Publishes something transient at its place in the order. */
  note(note: Note): void {
    if (this.#ended) return;
    const last = this.#items.at(-1);
    if (this.#run) {
      if (this.front === this.#run) note(this.tip);
      else this.#runNotes.push({ offset: this.#run.length, note });
    } else if (last) last.behind.push(note);
    else note(this.tip);
    this.#options.touched();
  }

  /** Writes the session's row with the next commit. */
  setRow(row: SessionRow): void {
    this.#row = row;
    this.#options.touched();
  }

  dropRow(): void {
    this.#row = undefined;
  }

  /** Something waits for a commit. */
  get pending(): boolean {
    return this.#items.length > 0;
  }

  peek(maxRecords: number, maxBytes: number): readonly Buffer[] {
    const records: Buffer[] = [];
    let bytes = 0;
    for (const { record, last } of this.#items) {
      if (records.length > 0 && (records.length >= maxRecords || bytes + record.length > maxBytes)) break;
      records.push(record);
      bytes += record.length;
      if (last) break;
    }
    this.#peeked = records.length;
    return records;
  }

  /** Of an order that ends: not before its last event, which may be refused. */
  peekRow(): SessionRow | undefined {
    return this.#items.findIndex(({ last }) => last) >= this.#peeked ? undefined : this.#row;
  }

  settled(outcome: CommitOutcome, count: number, row?: SessionRow): void {
    if (outcome.outcome === 'unknown') return;
    if (outcome.outcome === 'not_committed') {
      this.#refuse(outcome.message);
      return;
    }
    if (row !== undefined && this.#row === row) this.#row = undefined;
    // What has just been committed is still to be shown: it stays at hand whatever its size, until the next commit.
    this.#recent.trim();
    for (const item of this.#items.splice(0, count)) {
      this.#head++;
      this.#queued(-item.record.length);
      this.#recent.add(this.#head, item.record);
      this.#published.push({ item, seq: this.#head });
      this.#ended ||= item.last === true;
    }
    if (this.#ended) this.#dropAll();
    if (this.#stalled) {
      this.#stalled = false;
      this.#options.stalled(undefined);
    }
  }

  /** Runs what waited for the commits that have settled. */
  published(): void {
    const done = this.#published;
    this.#published = [];
    for (const { item, seq } of done) {
      // Behind all of its text is behind the event, which clients are shown whole.
      for (const { offset, note } of item.inside)
        note(offset === item.run?.length ? { seq, offset: 0 } : { seq: seq - 1, offset });
      item.settled?.(seq);
      for (const note of item.behind) note({ seq, offset: 0 });
    }
    this.#publishFrontNotes();
    this.#options.touched();
  }

  /** Gives up everything that waits: the session was never made. */
  discard(): void {
    this.#dropAll();
    this.#row = undefined;
  }

  #dropAll(): void {
    this.close();
    this.#items = [];
    this.#run = undefined;
    this.#runNotes = [];
    this.#queuedRun(0);
    this.#queued(-this.#queuedBytes);
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#recent.close();
    this.#timer = undefined;
  }

  #queued(bytes: number): void {
    this.#queuedBytes += bytes;
    this.#options.backlog.bytes += bytes;
  }

  /** A run that is held open by a full disk counts, beyond what it may hold, until it can be cut. */
  #queuedRun(bytes: number): void {
    this.#options.backlog.bytes += bytes - this.#runBytes;
    this.#runBytes = bytes;
  }

  #push(item: Item): void {
    this.#items.push(item);
    this.#queued(item.record.length);
    this.#options.touched();
  }

  #publishFrontNotes(): void {
    const first = this.#items[0];
    const notes = first ? (first.run ? first.inside.splice(0) : []) : this.#runNotes.splice(0);
    for (const { offset, note } of notes) note({ seq: this.#head, offset });
  }

  #refuse(message: string): void {
    const given: { item: Item; seq: number }[] = [];
    const kept: Item[] = [];
    const notes: Note[] = [];
    for (const [index, item] of this.#items.entries()) {
      if (!item.refused) {
        kept.push(item);
        continue;
      }
      given.push({ item, seq: this.#head + 1 + index });
      // What stood behind it keeps its place.
      (kept.at(-1)?.behind ?? notes).push(...item.behind);
    }
    this.#items = kept;
    for (const { seq } of given.toReversed()) this.#options.movedUp(seq);
    for (const { item } of given) {
      this.#queued(-item.record.length);
      item.refused?.(message);
    }
    for (const note of notes) note({ seq: this.#head, offset: 0 });
    this.#reopen();
    if (!this.#stalled) {
      this.#stalled = true;
      this.#options.stalled(message);
    }
    if (this.quiet && this.#row === undefined) setTimeout(this.#tryAgain, RETRY_MS).unref();
  }

  /**
   * The text that waits at the front is one run again, which clients go on reading: what was cut before the disk was
   * known to be full, and the open run when nothing stands between. An open one is cut again after a while.
   */
  #reopen(): void {
    const first = this.#items[0];
    if (!first?.run) return;
    const { run } = first;
    const fits = (other: Run): boolean => other.shape.key === run.shape.key && other.turnId === run.turnId;
    let count = 1;
    while (this.#items[count]?.run && fits(this.#items[count]?.run as Run)) count++;
    const next = this.#run;
    const opens = count === this.#items.length && (next === undefined || fits(next));
    if (!opens && count === 1) return;
    const notes: { offset: number; note: Note }[] = [];
    run.reopen();
    for (const item of this.#items.splice(0, count)) {
      this.#queued(-item.record.length);
      const start = item === first ? 0 : run.length;
      if (item !== first) run.append((item.run as Run).text);
      notes.push(...item.inside.map(({ offset, note }) => ({ offset: start + offset, note })));
      notes.push(...item.behind.map((note) => ({ offset: run.length, note })));
    }
    if (!opens) {
      const record = run.seal();
      this.#items.unshift({ record, run, inside: notes, behind: [] });
      this.#queued(record.length);
      return;
    }
    const start = run.length;
    if (next) run.append(next.text);
    notes.push(...this.#runNotes.map(({ offset, note }) => ({ offset: start + offset, note })));
    this.#run = run;
    this.#runNotes = notes;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.#onTimer, RETRY_MS);
  }

  /** Events up to `seq` have been pruned: what is left of them is in the log. */
  pruned(seq: number): void {
    this.#recent.dropTo(seq);
  }

  /** Everything was given up and nothing is left to find out with: the next one may try. */
  readonly #tryAgain = (): void => {
    if (!this.#stalled || !this.quiet || this.#row !== undefined) return;
    this.#stalled = false;
    this.#options.stalled(undefined);
  };

  readonly #onTimer = (): void => {
    this.#timer = undefined;
    const run = this.#run;
    if (!run) return;
    const age = this.#options.now() - run.bornAt;
    if (age >= RUN_MS || this.#stalled) this.closeRun();
    else this.#timer = setTimeout(this.#onTimer, Math.max(1, RUN_MS - age));
  };
}
