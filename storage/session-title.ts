/** A title for sessions whose agent gives none: the beginning of the first user message. */
import { isObject } from '../protocol/json-rpc.ts';
import { EVENT_TYPES } from '../protocol/event.ts';
import { parseWire } from '../protocol/wire-text.ts';
import { UPDATE_KINDS } from '../protocol/v1/update-kinds.ts';
import { decodeRecord, typeCode, updateKind } from './event-codec.ts';
import type { EventLog, SessionRow } from './event-log.ts';
import { updatesOf } from './history-fold.ts';

/** A session begins with a few events of its own before anybody speaks. */
const LOOK_AT_EVENTS = 64;
const TITLE_CHARACTERS = 80;
const KEPT = 10_000;

export class SessionTitles {
  readonly #log: EventLog;
  readonly #kept = new Map<number, string>();

  constructor(log: EventLog) {
    this.#log = log;
  }

  /** The agent's title, else the first words of the user; undefined before there are any. */
  of(row: SessionRow): string | undefined {
    if (typeof row.title === 'string' && row.title !== '') return row.title;
    const known = this.#kept.get(row.num);
    if (known !== undefined) return known;
    const text = this.#firstWords(row);
    if (text === undefined) return undefined;
    if (this.#kept.size >= KEPT) this.#kept.clear();
    this.#kept.set(row.num, text);
    return text;
  }

  #firstWords(row: SessionRow): string | undefined {
    let words: string | undefined;
    this.#log.scan(row.num, row.low, row.low + LOOK_AT_EVENTS - 1, (seq, record, length) => {
      const type = typeCode(record);
      const says = type === EVENT_TYPES.update && updateKind(record) === UPDATE_KINDS.user_message_chunk;
      if (type !== EVENT_TYPES.turn_started && type !== EVENT_TYPES.pruned && !says) return true;
      const event = decodeRecord(record, length, seq);
      if ('unreadable' in event) return false;
      if (type === EVENT_TYPES.pruned) {
        const { firstWords } = parseWire(event.payload) as { firstWords?: string };
        words = firstWords;
        return words === undefined;
      }
      for (const { content } of updatesOf(event)) {
        if (words === undefined && isObject(content) && typeof content['text'] === 'string')
          words = cut(content['text']);
      }
      return words === undefined;
    });
    return words;
  }
}

/** One line, cut at a character; undefined when nothing is left. */
function cut(text: string): string | undefined {
  const line = text.replace(/\s+/g, ' ').trim();
  const characters = Array.from(line.slice(0, 2 * TITLE_CHARACTERS));
  if (characters.length <= TITLE_CHARACTERS) return line === '' ? undefined : line;
  return `${characters
    .slice(0, TITLE_CHARACTERS - 3)
    .join('')
    .trimEnd()}...`;
}
