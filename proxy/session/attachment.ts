/**
 * An attachment: a connection on a session. It is a position that the pump moves to the tip, and what the session owes
 * this client at certain positions.
 */
import type { RpcError } from '../../protocol/error.ts';
import { type Position, comparePositions } from '../../protocol/event-id.ts';
import { errorText } from '../../protocol/json-rpc.ts';
import { stringifyWire } from '../../protocol/wire-text.ts';
import { ChildReplay } from './child-replay.ts';

/** A message that is sent when the position has reached `seq, offset`. */
export interface Owed extends Position {
  /** `answer`: the response of a request, never given up. `card`: asks for an approval. `passing`: transient. */
  readonly what: 'answer' | 'card' | 'passing';
  readonly wire: string;
  /** Of a card: the id of the request to the client; else a key, see `oweNewest`. */
  readonly requestId?: string;
  /** Of the answer to a replay: the id of the client's request, which gets an error when the log cannot be read. */
  readonly replayOf?: string;
}

/** What an attachment's client can and may see. */
export interface View {
  /** The client opted in to `_meta.sidecar` and `_sidecar/*`. */
  readonly sidecar: boolean;
  /** Kinds of update (numbers) that this client did not advertise. */
  readonly hidden: ReadonlySet<number>;
  readonly clientId: string | undefined;
  /** The clientId bound to the client's token; undefined for one that gave none. */
  readonly identity: string | undefined;
  /** The client knows of child sessions and is shown their updates. */
  readonly children: boolean;
  /** The client knows options that are on or off. */
  readonly booleanOptions: boolean;
}

/** How a client attaches. */
export interface AttachOptions {
  /** By `session/attach`: RFD #533's updates are sent, too. */
  readonly rfd?: boolean;
  /** It only looks on, here. */
  readonly observer?: boolean;
  /** It is not asked about approvals before this seq. */
  readonly asksFrom?: number;
}

export class Attachment {
  readonly view: View;
  rfd = false;
  observer = false;
  asksFrom = 0;
  position: Position;
  /** The tip when its view began: what is older is not sent before its response. */
  attachedAt: Position = { seq: 0, offset: 0 };
  /** Messages up to here are marked `isReplay`; undefined when nothing is being replayed in full. */
  replayUntil: Position | undefined;
  /** Children that were loaded by their own ids, wire text: shown whatever the client advertised. */
  readonly children = new Set<string>();
  /** Replays of children that have been asked for and are not over. */
  childReplay: ChildReplay | undefined;
  #owed: Owed[] = [];
  /** Turns whose prompt this attachment sent since its view began: it has them on its screen. */
  readonly ownTurns = new Set<string>();
  /** The last pump could not bring it to the tip. */
  behind = false;
  /** Pages up to this seq are in memory. */
  prefetched = 0;
  prefetching = false;
  /** They had to be read from the disk. */
  cold = false;

  constructor(position: Position, view: View) {
    this.position = position;
    this.view = view;
  }

  /** Begins the view: `tip` is where the response will be. */
  begin(tip: Position, { rfd = false, observer = false, asksFrom = 0 }: AttachOptions): void {
    this.attachedAt = tip;
    this.rfd = rfd;
    this.observer = observer;
    this.asksFrom = asksFrom;
  }

  get nextOwed(): Owed | undefined {
    return this.#owed[0];
  }

  get owedCount(): number {
    return this.#owed.length;
  }

  get owes(): boolean {
    return this.#owed.length > 0;
  }

  takeOwed(): Owed | undefined {
    return this.#owed.shift();
  }

  /**
   * What must be answered all the same when the attachment ends before its position is there.
   * @param damage why no replay can be finished
   */
  takeAnswers(damage: RpcError | undefined): string[] {
    const answers = this.#owed.filter((owed) => owed.what === 'answer');
    this.#owed = [];
    return answers.map(({ wire, replayOf }) =>
      damage && replayOf !== undefined ? errorText(replayOf, stringifyWire(damage)) : wire,
    );
  }

  /** Queues a message behind everything that is owed at or before its position. */
  owe(owed: Owed): void {
    let at = this.#owed.length;
    while (at > 0 && comparePositions(this.#owed[at - 1] as Owed, owed) > 0) at--;
    this.#owed.splice(at, 0, owed);
  }

  /** Takes back a card: one that was not sent yet is dropped, else the client is told. */
  withdrawCard(requestId: string, withdrawal: Owed): void {
    const at = this.#owed.findIndex((owed) => owed.what === 'card' && owed.requestId === requestId);
    if (at >= 0) this.#owed.splice(at, 1);
    else this.owe(withdrawal);
  }

  /** Owes a message that replaces the last one under the same key: only the newest counts. */
  oweNewest(key: string, owed: Owed): void {
    const at = this.#owed.findIndex((entry) => entry.what === 'passing' && entry.requestId === key);
    if (at >= 0) this.#owed.splice(at, 1);
    this.owe({ ...owed, requestId: key });
  }

  /** Starts the view anew at a position: answers stay owed, everything else is asked or shown again. */
  restart(position: Position): void {
    this.position = position;
    this.replayUntil = undefined;
    this.childReplay = undefined;
    this.ownTurns.clear();
    this.prefetched = 0;
    this.#owed = this.#owed.filter((owed) => owed.what === 'answer');
  }

  /** Shows a child's updates from a position on, and everything else from where the view is. */
  replayChild(child: string, from: Position, full: boolean): void {
    const { position } = this;
    if (!this.childReplay || this.childReplay.isOver(position)) this.childReplay = new ChildReplay(position);
    this.childReplay.add(child, from, full, position);
    if (comparePositions(from, position) >= 0) return;
    this.position = from;
    this.prefetched = 0;
  }
}
