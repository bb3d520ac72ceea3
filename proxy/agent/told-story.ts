/**
 * What a log has of a conversation, in the form in which an agent's replay is compared with it: ids, chunking and
 * thoughts do not count.
 */
import { isObject, type JsonObject } from '../../protocol/json-rpc.ts';
import { chunkText } from '../../protocol/v1/chunk-text.ts';
import { UPDATE_KINDS } from '../../protocol/v1/update-kinds.ts';
import { items, parseWire, valueAt } from '../../protocol/wire-text.ts';
import { decodeRecord, type StoredEvent } from '../../storage/event-codec.ts';
import type { EventLog } from '../../storage/event-log.ts';

export type Speaker = 'user' | 'agent';

interface Passage {
  readonly speaker: Speaker;
  text: string;
}

export interface Place {
  readonly passage: number;
  readonly offset: number;
}

/** Text that is compared; what is behind it counts as new. */
const MAX_TEXT = 32 * 1024 * 1024;

export class ToldStory {
  readonly #passages: Passage[] = [];
  /** Passages in which a message of the user begins. */
  readonly #userStarts: number[] = [];
  readonly #others = new Set<string>();
  #length = 0;
  /** Seq of the first event that was not read. */
  #next = 1;

  /** Reads on, up to the event `head`. @param low the first event that the log still has */
  read(log: EventLog, num: number, low: number, head: number): void {
    log.scan(num, Math.max(this.#next, low), head, (seq, record, length) => {
      const event = decodeRecord(record, length, seq, false);
      if (!('unreadable' in event) && event.childSessionId === undefined) this.#take(event);
      return this.#length < MAX_TEXT;
    });
    this.#next = head + 1;
  }

  /** The n-th message of the user, from 0. */
  userMessage(n: number): Place | undefined {
    const passage = this.#userStarts[n];
    return passage === undefined ? undefined : { passage, offset: 0 };
  }

  /** Where the story stands after `text` of `speaker`, undefined when it goes on differently at `from`. */
  follow(from: Place, speaker: Speaker, text: string): Place | undefined {
    let { passage, offset } = from;
    for (let at = 0; at < text.length; ) {
      const here = this.#passages[passage];
      if (!here) return undefined;
      if (offset === here.text.length) {
        passage++;
        offset = 0;
        continue;
      }
      const length = Math.min(text.length - at, here.text.length - offset);
      if (here.speaker !== speaker) return undefined;
      if (text.slice(at, at + length) !== here.text.slice(offset, offset + length)) return undefined;
      at += length;
      offset += length;
    }
    return { passage, offset };
  }

  /** Does the log have this update, which is not text, word for word? */
  has(kind: number, wire: string): boolean {
    return this.#others.has(otherKey(kind, wire));
  }

  #take(event: StoredEvent): void {
    if (event.type === 'turn_started') {
      const prompt = valueAt(event.payload, ['prompt']) ?? '[]';
      let text = '';
      for (const [start, end] of items(prompt)) {
        const block = parseWire(prompt.slice(start, end));
        if (isObject(block) && typeof block['text'] === 'string') text += block['text'];
        else this.#others.add(`${UPDATE_KINDS.user_message_chunk} ${prompt.slice(start, end)}`);
      }
      this.#add('user', text, true);
      return;
    }
    if (event.type !== 'update') return;
    const speaker = speakerOf(event.kind);
    const text = speaker && chunkText(parseWire(event.payload) as JsonObject);
    if (speaker && text !== undefined) this.#add(speaker, text, false);
    else if (event.kind !== UPDATE_KINDS.tool_call && event.kind !== UPDATE_KINDS.tool_call_update) {
      this.#others.add(otherKey(event.kind, event.payload));
    }
  }

  #add(speaker: Speaker, text: string, begins: boolean): void {
    const last = this.#passages.at(-1);
    this.#length += text.length;
    if (last?.speaker === speaker && !begins) {
      last.text += text;
      return;
    }
    if (speaker === 'user') this.#userStarts.push(this.#passages.length);
    this.#passages.push({ speaker, text });
  }
}

export function speakerOf(kind: number): Speaker | undefined {
  if (kind === UPDATE_KINDS.user_message_chunk) return 'user';
  return kind === UPDATE_KINDS.agent_message_chunk ? 'agent' : undefined;
}

/** Blocks of messages are compared by their content, other updates as a whole. */
function otherKey(kind: number, wire: string): string {
  return `${kind} ${speakerOf(kind) ? (valueAt(wire, ['content']) ?? '') : wire}`;
}
