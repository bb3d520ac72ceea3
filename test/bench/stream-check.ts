/**
 * Follows what one client receives of a script: every character of every delta and every tool event once, in order,
 * nothing between. Text may come in pieces of any number of deltas, as long as the whole is the same.
 */
import { CELL_BYTES, cell, cellStampNs, type Plan } from './script.ts';
import type { Block } from './websocket-client.ts';

const KIND = '"sessionUpdate":"';
const TEXT = '"text":"';
const TITLE = '"title":"';
const EVENT_ID = '"eventId":"';

/** The text of a plan without stamps is known beforehand: kept, so that a check is one comparison of bytes. */
const texts = new Map<number, Buffer>();

function textOf(deltas: number): Buffer {
  let text = texts.get(deltas);
  if (!text) {
    text = Buffer.allocUnsafe(deltas * CELL_BYTES);
    for (let i = 0; i < deltas; i++) text.write(cell(i, 0), i * CELL_BYTES, 'latin1');
    texts.set(deltas, text);
  }
  return text;
}

export interface CheckOptions {
  /** Tool events before this index were seen elsewhere and must not come again. */
  readonly firstEvent?: number;
  /** The cursor after the tool event with this index is kept. */
  readonly markEvent?: number;
}

export class StreamCheck {
  readonly latenciesNs: number[] = [];
  /** Resolves when everything was seen or something was wrong. */
  readonly ended: Promise<void>;
  messages = 0;
  markedEventId = '';
  firstAtNs = 0;
  completeAtNs = 0;
  readonly #plan: Plan;
  readonly #options: CheckOptions;
  readonly #text: Buffer;
  readonly #textBytes: number;
  readonly #events: number;
  #seenTextBytes = 0;
  #seenEvents: number;
  #fault = '';
  #end: () => void = () => undefined;

  constructor(plan: Plan, options: CheckOptions = {}) {
    this.#plan = plan;
    this.#options = options;
    this.#text = plan.everyMs === 0 ? textOf(plan.groups * plan.deltas) : Buffer.alloc(0);
    this.#textBytes = plan.groups * plan.deltas * CELL_BYTES;
    this.#events = plan.groups * plan.events;
    this.#seenEvents = options.firstEvent ?? 0;
    this.ended = new Promise((resolve) => {
      this.#end = resolve;
    });
  }

  get seenDeltas(): number {
    return this.#seenTextBytes / CELL_BYTES;
  }

  /** Takes a message if it is an update of the agent's script or of another kind; false when it is no update. */
  take(block: Block, from: number, to: number): boolean {
    const at = block.text.indexOf(KIND, from) + KIND.length;
    if (at < KIND.length || at > to) return false;
    if (block.text.startsWith('agent_message_chunk"', at)) this.#takeText(block, from, to);
    else if (block.text.startsWith('tool_call', at)) this.#takeEvent(block, from, to);
    else return true;
    if (this.messages === 0) this.firstAtNs = block.readAtNs;
    this.messages += 1;
    if (this.#seenTextBytes === this.#textBytes && this.#seenEvents === this.#events) {
      this.completeAtNs = block.readAtNs;
      this.#end();
    }
    return true;
  }

  /** Throws what was wrong, or what is missing. */
  assertComplete(): void {
    if (this.#fault !== '') throw new Error(this.#fault);
    if (this.completeAtNs > 0) return;
    throw new Error(
      `${this.seenDeltas} of ${this.#textBytes / CELL_BYTES} deltas and ${this.#seenEvents} of ${this.#events} events came`,
    );
  }

  #fail(fault: string): void {
    this.#fault ||= fault;
    this.#end();
  }

  #takeText(block: Block, from: number, to: number): void {
    const start = block.text.indexOf(TEXT, from) + TEXT.length;
    const end = block.text.indexOf('"', start);
    const seen = this.#seenTextBytes;
    const next = seen + end - start;
    if (start > to || end > to || next > this.#textBytes) return this.#fail('text came that the agent never sent');
    const same = this.#plan.everyMs === 0 ? block.bytes.compare(this.#text, seen, next, start, end) === 0 : true;
    if (!same || !this.#inTurn(seen, next)) return this.#fail(`other text than delta ${Math.floor(seen / CELL_BYTES)}`);
    this.#seenTextBytes = next;
    if (this.#plan.everyMs > 0) this.#takeStamps(block, start, end, seen / CELL_BYTES);
  }

  /** Whether the text between two offsets belongs between the tool events seen and the next ones. */
  #inTurn(from: number, to: number): boolean {
    const { deltas, events } = this.#plan;
    const first = Math.floor(from / CELL_BYTES / deltas) * events;
    const last = Math.floor((to - 1) / CELL_BYTES / deltas) * events;
    return first === this.#seenEvents && last === this.#seenEvents;
  }

  #takeStamps(block: Block, start: number, end: number, firstIndex: number): void {
    let index = firstIndex;
    for (let at = start; at < end; at += CELL_BYTES) {
      const stampNs = cellStampNs(block.text, at, index);
      if (stampNs === undefined) return this.#fail(`other text than delta ${index}`);
      this.latenciesNs.push(block.readAtNs - stampNs);
      index += 1;
    }
  }

  #takeEvent(block: Block, from: number, to: number): void {
    const index = this.#seenEvents;
    const { deltas, events, everyMs } = this.#plan;
    const title = block.text.indexOf(TITLE, from) + TITLE.length;
    const stampNs = title > to ? undefined : cellStampNs(block.text, title, index);
    const textBefore = (Math.floor(index / events) + 1) * deltas * CELL_BYTES;
    if (stampNs === undefined || index >= this.#events || this.#seenTextBytes !== textBefore) {
      return this.#fail(`another tool event than number ${index}, or text around it is missing`);
    }
    if (everyMs > 0) this.latenciesNs.push(block.readAtNs - stampNs);
    if (index === this.#options.markEvent) this.markedEventId = eventIdIn(block.text, from, to);
    this.#seenEvents += 1;
  }
}

function eventIdIn(text: string, from: number, to: number): string {
  const start = text.indexOf(EVENT_ID, from) + EVENT_ID.length;
  if (start < EVENT_ID.length || start > to) throw new Error('a tool event came without an eventId');
  return text.slice(start, text.indexOf('"', start));
}
