/** `acp-sidecar history ID`: the chat of a session, oldest message first. Folded from the log in this process. */
import { isObject } from '../../protocol/json-rpc.ts';
import { stringifyWire } from '../../protocol/wire-text.ts';
import { HistoryCache, HistoryLogDamage, type HistoryMessage } from '../../storage/history-cache.ts';
import { updatesOf } from '../../storage/history-fold.ts';
import { coldTail } from './cold-tail.ts';
import { CommandError } from './exit-code.ts';
import { flushed, printText, printWire, requireSession, withStore } from './read-store.ts';
import { type Colour, paint } from './terminal.ts';

const PAGE_MESSAGES = 500;
const COLOURS: Readonly<Record<string, Colour>> = {
  user: 'cyan',
  assistant: 'green',
  agent: 'green',
  tool_call: 'yellow',
};

export interface HistoryOptions {
  readonly json: boolean;
  /** Only the latest. */
  readonly limit: number | undefined;
}

export async function printHistory(
  storeDir: string,
  sessionId: string,
  { json, limit = Number.POSITIVE_INFINITY }: HistoryOptions,
): Promise<void> {
  await withStore(storeDir, async (log) => {
    const row = requireSession(log, sessionId);
    const also = (await coldTail(storeDir, log, row)).flatMap((event) => updatesOf(event));
    const cache = new HistoryCache(log, undefined);
    try {
      // Where each page begins, newest first; then the pages are printed the other way round.
      const begins: (number | undefined)[] = [];
      let wanted = limit;
      let beforeSeq: number | undefined;
      do {
        begins.push(beforeSeq);
        const page = await cache.page(row, { beforeSeq, limit: Math.min(PAGE_MESSAGES, wanted) });
        wanted -= page.messages.length;
        beforeSeq = page.nextBefore === undefined ? undefined : Number(page.nextBefore.slice(row.logId.length + 1));
      } while (beforeSeq !== undefined && wanted > 0);
      let left = limit === Number.POSITIVE_INFINITY ? PAGE_MESSAGES : limit - (begins.length - 1) * PAGE_MESSAGES;
      for (const begin of begins.toReversed()) {
        const page = await cache.page(row, { beforeSeq: begin, limit: Math.min(PAGE_MESSAGES, left), also });
        for (const message of page.messages.toReversed()) print(message, json);
        await flushed();
        left = PAGE_MESSAGES;
      }
    } catch (error) {
      if (!(error instanceof HistoryLogDamage)) throw error;
      throw new CommandError(
        'store_failed',
        `session ${JSON.stringify(sessionId)}: event ${error.seq} cannot be read: ${error.message}`,
        '`acp-sidecar verify` tells what else is wrong',
      );
    } finally {
      cache.close();
    }
  });
}

function print(message: HistoryMessage, json: boolean): void {
  if (json) {
    printWire(stringifyWire(message));
    return;
  }
  const colour = COLOURS[message.type === 'message' ? String(message['role']) : message.type] ?? 'dim';
  for (const [i, line] of shown(message).split('\n').entries()) {
    if (i > 0) printText(`    ${line}`);
    else printText(line, (text) => text.replace(/^[^:]*:/, (who) => paint(who, colour)));
  }
}

/** For people: who, then what was said. */
function shown(message: HistoryMessage): string {
  const text = textOf(message['content']);
  switch (message.type) {
    case 'message':
      return `${String(message['role'])}: ${text}`;
    case 'tool_call':
      return `tool: ${word(message['title']) ?? word(message['toolCallId'])} [${word(message['status']) ?? 'pending'}]`;
    default:
      return `${message.type}: ${text === '' ? String(message['id']) : text}`;
  }
}

function word(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

function textOf(content: unknown): string {
  if (!Array.isArray(content)) return '';
  return content
    .map((block: unknown) => {
      if (!isObject(block)) return '';
      return typeof block['text'] === 'string' ? block['text'] : `[${String(block['type'])}]`;
    })
    .join('');
}
