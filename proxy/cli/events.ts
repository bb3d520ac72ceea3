/** `acp-sidecar events ID`: the events of a session, one a line. */
import { decodeWire, parseWire } from '../../protocol/wire-text.ts';
import type { StoredEvent } from '../../storage/event-codec.ts';
import { eventJson } from '../event-json.ts';
import { coldTail } from './cold-tail.ts';
import { flushed, printText, printWire, readEvents, requireSession, withStore } from './read-store.ts';
import { fitted, paint } from './terminal.ts';

const SUMMARY_CHARACTERS = 100;

function textOf(value: unknown): string | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const { content, text, title, prompt } = value as Record<string, unknown>;
  if (Array.isArray(prompt)) return prompt.map((block) => textOf(block) ?? '').join(' ');
  if (typeof text === 'string') return text;
  if (typeof title === 'string') return title;
  return textOf(content);
}

/** For people: what kind of update it is and the beginning of its text. */
function summary(event: StoredEvent): string {
  let payload: unknown;
  try {
    payload = parseWire(event.payload);
  } catch {
    return '';
  }
  const kind = (payload as { sessionUpdate?: unknown } | null)?.sessionUpdate;
  const text = textOf(payload) ?? (typeof kind === 'string' ? '' : decodeWire(event.payload));
  const words = `${typeof kind === 'string' ? `${kind} ` : ''}${text}`.replace(/\s+/g, ' ').trim();
  return words.length > SUMMARY_CHARACTERS ? `${words.slice(0, SUMMARY_CHARACTERS)}...` : words;
}

/** One event on a line, for programs or for people; `*` marks those that the sidecar made. */
export function printEvent(logId: string, event: StoredEvent, json: boolean): void {
  if (json) {
    printWire(eventJson(logId, event));
    return;
  }
  const head = `${String(event.seq).padStart(6)} ${new Date(event.time).toISOString()}`;
  const type = `${event.synthetic ? '*' : ' '}${event.type.padEnd(20)}`;
  printText(fitted(`${head} ${type} ${summary(event)}`), (line) => {
    const [colour, rest] = [event.synthetic ? 'yellow' : 'cyan', head.length + 1 + type.length] as const;
    return `${paint(head, 'dim')} ${paint(type, colour)}${line.slice(rest)}`;
  });
}

/** The log's events, then, of a session that nobody uses, those that its repair would add. */
export async function printEvents(storeDir: string, sessionId: string, json: boolean): Promise<void> {
  await withStore(storeDir, async (log) => {
    const row = requireSession(log, sessionId);
    await readEvents(log, row, (event) => printEvent(row.logId, event, json));
    for (const event of await coldTail(storeDir, log, row)) printEvent(row.logId, event, json);
    await flushed();
  });
}
