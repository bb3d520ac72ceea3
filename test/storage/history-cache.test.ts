/** The chat history is always what the log says, whatever is done to the cache's files. */
import {
  closeSync,
  existsSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { transcriptOf } from '../../protocol/v1/fold.ts';
import { REDUCER_VERSION } from '../../protocol/v1/transcript.ts';
import { crc32 } from 'node:zlib';
import type { SessionRow } from '../../storage/event-log.ts';
import { HistoryCache, type HistoryMessage, HistoryLogDamage } from '../../storage/history-cache.ts';
import { historyPath, prepareCacheDir } from '../../storage/history-dir.ts';
import { historyMessage } from '../../storage/history-message.ts';
import { MemoryEventLog } from '../../storage/memory-event-log.ts';
import { anyUpdate } from '../support/random-updates.ts';
import { testScope } from '../support/scope.ts';
import { seededRandom } from '../support/seeded-random.ts';
import { sessionRow } from '../support/session-row.ts';
import { tempDir } from '../support/temp-dir.ts';
import { promptEvent, textEvent, turnEnd, updateEvent, write, type WrittenEvent } from '../support/written-log.ts';
import { propertyRuns } from '../support/properties.ts';

const ROW = sessionRow(1);

/** All messages, oldest first, gathered page by page. */
async function whole(cache: HistoryCache, row: SessionRow = ROW, limit = 7): Promise<HistoryMessage[]> {
  const messages: HistoryMessage[] = [];
  let beforeSeq: number | undefined;
  for (;;) {
    const page = await cache.page(row, { limit, beforeSeq });
    messages.push(...page.messages);
    if (page.nextBefore === undefined) return messages.toReversed();
    beforeSeq = Number(page.nextBefore.split('-')[1]);
  }
}

/** The same folded in one go from what a replay shows. */
function expected(updates: readonly object[]): unknown[] {
  return transcriptOf(updates).entries.map((entry) => {
    const {
      eventId: _eventId,
      time: _time,
      ...rest
    } = historyMessage('x', { seq: 1, time: 0, turnId: undefined, entry });
    return rest;
  });
}

function bare(messages: readonly HistoryMessage[]): unknown[] {
  return messages.map(({ eventId: _eventId, time: _time, turnId: _turnId, ...rest }) => rest);
}

/** A session with 40 turns: prompts, text, tools that end long after they began. */
function story(turns: number): { events: WrittenEvent[]; updates: object[] } {
  const events: WrittenEvent[] = [{ type: 'session_created', required: true, payload: '{}' }];
  const updates: object[] = [];
  const update = (value: object): void => {
    events.push(updateEvent(value));
    updates.push(value);
  };
  for (let turn = 1; turn <= turns; turn++) {
    const turnId = `turn-${turn}`;
    events.push(promptEvent(turnId, `question ${turn} é😀`, 'and more'));
    for (const text of [`question ${turn} é😀`, 'and more']) {
      updates.push({ sessionUpdate: 'user_message_chunk', content: { type: 'text', text }, messageId: turnId });
    }
    update({ sessionUpdate: 'agent_thought_chunk', content: { type: 'text', text: 'hm' } });
    update({ sessionUpdate: 'tool_call', toolCallId: `tool-${turn}`, title: 'run', status: 'pending' });
    update({ sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: `answer ${turn}` } });
    if (turn > 20) {
      update({
        sessionUpdate: 'tool_call_update',
        toolCallId: `tool-${turn - 20}`,
        status: 'completed',
        rawOutput: { turn },
      });
    }
    events.push(turnEnd(turnId));
  }
  return { events, updates };
}

describe('chat history', () => {
  it('[HI1] is the transcript of a full replay, newest page first, each message with the event that began it', async () => {
    const log = new MemoryEventLog();
    const { events, updates } = story(40);
    await write(log, ROW, events);
    const cache = new HistoryCache(log, undefined);
    const messages = await whole(cache);
    expect(bare(messages)).toEqual(expected(updates));
    const newest = (await cache.page(ROW, { limit: 2 })).messages;
    expect(newest.map((message) => message.eventId)).toEqual(
      messages
        .slice(-2)
        .toReversed()
        .map((message) => message.eventId),
    );
    expect(messages[0]).toMatchObject({
      eventId: 'log1-2',
      turnId: 'turn-1',
      type: 'message',
      role: 'user',
      time: '1970-01-01T00:00:01.002Z',
      content: [{ type: 'text', text: 'question 1 é😀and more' }],
    });
    expect(messages.find((message) => message['toolCallId'] === 'tool-1')).toMatchObject({
      type: 'tool_call',
      title: 'run',
      status: 'completed',
      rawOutput: { turn: 21 },
    });
    expect((await cache.page(ROW)).lastEventId).toBe(`log1-${log.lastSeq(1)}`);
  });

  it('[HI1] of any stream of updates is the fold of that stream, however it is caught up', async () => {
    const dir = tempDir(testScope());
    let run = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(fc.array(anyUpdate, { maxLength: 12 }), { maxLength: 6 }), async (parts) => {
        const log = new MemoryEventLog();
        const files = join(dir, String(run++));
        let cache = new HistoryCache(log, files);
        await write(log, ROW, []);
        for (const [i, part] of parts.entries()) {
          await write(
            log,
            ROW,
            part.map((update) => updateEvent(update)),
          );
          const seen = bare(await whole(cache, ROW, 3));
          expect(seen).toEqual(JSON.parse(JSON.stringify(expected(parts.slice(0, i + 1).flat()))));
          if (i % 2 === 0) {
            cache.close();
            cache = new HistoryCache(log, files);
          }
        }
        cache.close();
      }),
      propertyRuns(60),
    );
  });

  it('[HI1] shows what replay shows of other events, and nothing of child sessions', async () => {
    const log = new MemoryEventLog();
    await write(log, ROW, [
      {
        type: 'session_bound',
        required: true,
        payload: '{"agentSessionId":"a","how":"primed","note":"a new context"}',
      },
      { type: 'missing', payload: '{"text":"a message was too large"}' },
      promptEvent('t', 'x'),
      updateEvent(
        { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: 'of a child' } },
        { childSessionId: 'c' },
      ),
      { type: 'session_bound', required: true, payload: '{"agentSessionId":"a","how":"loaded","response":{}}' },
    ]);
    const shown = bare(await whole(new HistoryCache(log, undefined)));
    expect(shown).toEqual([
      { type: 'message', role: 'agent', content: [{ type: 'text', text: 'a new context[a message was too large]' }] },
      { type: 'message', role: 'user', messageId: 't', content: [{ type: 'text', text: 'x' }] },
    ]);
  });

  it('recent messages are bounded by bytes, newest first', async () => {
    const log = new MemoryEventLog();
    await write(log, ROW, story(40).events);
    const cache = new HistoryCache(log, undefined);
    const all = (await whole(cache)).toReversed();
    const some = await cache.recent(ROW, 2000);
    expect(some).toEqual(all.slice(0, some.length));
    expect(some.length).toBeGreaterThan(5);
    expect(JSON.stringify(some).length).toBeLessThan(3000);
    expect(await cache.recent(ROW, 1_000_000)).toEqual(all);
    expect(await cache.recent(ROW, 10)).toEqual([]);
  });

  it('a page ends at 1 MiB, but has a message', async () => {
    const log = new MemoryEventLog();
    const long = 'x'.repeat(900_000);
    await write(
      log,
      ROW,
      [1, 2, 3].flatMap((turn) => [promptEvent(`t${turn}`, long), textEvent('ok')]),
    );
    const page = await new HistoryCache(log, undefined).page(ROW, { limit: 100 });
    expect(page.messages).toHaveLength(3);
    expect(page.nextBefore).toBe('log1-4');
  });

  it('a log that cannot be read is told, not skipped', async () => {
    const log = new MemoryEventLog();
    await write(log, ROW, story(3).events);
    log.remove(1, 4);
    await expect(new HistoryCache(log, undefined).page(ROW)).rejects.toEqual(new HistoryLogDamage(4, 'it is missing'));
  });

  it('a session that is pruned while it is read gives what is left', async () => {
    const log = new MemoryEventLog();
    const { events } = story(300);
    await write(log, ROW, events);
    const cache = new HistoryCache(log, undefined);
    const reading = whole(cache, ROW, 1000);
    // After the first slice of 256 events.
    await new Promise((resolve) => setImmediate(resolve));
    const end = events.findIndex(({ type, turnId }) => type === 'turn_ended' && turnId === 'turn-200') + 1;
    await log.commit({ appends: [], rows: [{ ...ROW, low: end }], removals: [{ num: 1, from: 1, to: end - 1 }] });
    expect((await reading)[0]).toMatchObject({ role: 'user', turnId: 'turn-201' });
  });

  it('many readers at once get the same', async () => {
    const log = new MemoryEventLog();
    await write(log, ROW, story(300).events);
    const cache = new HistoryCache(log, join(tempDir(testScope()), 'cache'));
    const pages = await Promise.all(Array.from({ length: 20 }, () => cache.page(ROW, { limit: 10 })));
    for (const page of pages) expect(page).toEqual(pages[0]);
    cache.close();
  });
});

interface Kept {
  readonly log: MemoryEventLog;
  readonly dir: string;
  readonly path: string;
  readonly wanted: unknown[];
}

async function kept(turns = 40): Promise<Kept> {
  const log = new MemoryEventLog();
  const dir = join(tempDir(testScope()), 'cache');
  const { events, updates } = story(turns);
  await write(log, ROW, events);
  const cache = new HistoryCache(log, dir);
  await cache.page(ROW);
  cache.close();
  return { log, dir, path: historyPath(dir, 1), wanted: expected(updates) };
}

/** When the file was made: a rebuild makes another. */
function birth(path: string): bigint {
  return statSync(path, { bigint: true }).birthtimeNs;
}

describe('the files of the chat history', () => {
  it('[HI2] are used again, and caught up, by the next process', async () => {
    const { log, dir, path, wanted } = await kept();
    const before = birth(path);
    const events = readFileSync(path).length;
    await write(log, ROW, [textEvent(' and more')]);
    const cache = new HistoryCache(log, dir);
    const seen = bare(await whole(cache));
    expect(seen.slice(0, -1)).toEqual(wanted.slice(0, -1));
    expect(JSON.stringify(seen.at(-1))).toContain('answer 40 and more');
    expect(birth(path)).toBe(before);
    expect(readFileSync(path).length - events).toBeLessThan(20_000);
    cache.close();
  });

  const deeds: Readonly<Record<string, (path: string) => void>> = {
    'deleted file': (path) => rmSync(path),
    'deleted directory': (path) => rmSync(join(path, '..'), { recursive: true }),
    'directory that is a file now': (path) => {
      rmSync(join(path, '..'), { recursive: true });
      writeFileSync(join(path, '..'), 'x');
    },
    'file that is a directory now': (path) => {
      rmSync(path);
      mkdirSync(path);
      writeFileSync(join(path, 'x'), 'x');
    },
    'file that is a link now': (path) => {
      renameSync(path, `${path}.elsewhere`);
      symlinkSync(`${path}.elsewhere`, path);
    },
    'empty file': (path) => truncateSync(path),
    'file cut in half': (path) => truncateSync(path, Math.floor(statSync(path).size / 2)),
    'file cut by a byte': (path) => truncateSync(path, statSync(path).size - 1),
    'file of zeros': (path) => writeFileSync(path, Buffer.alloc(statSync(path).size)),
    'file of text': (path) => writeFileSync(path, 'hello '.repeat(10_000)),
  };

  it.each(Object.keys(deeds))('[HI3] %s: the answers stay the same, between processes', async (deed) => {
    const { log, dir, path, wanted } = await kept();
    deeds[deed]?.(path);
    const cache = new HistoryCache(log, dir);
    expect(bare(await whole(cache))).toEqual(wanted);
    cache.close();
  });

  it.each(Object.keys(deeds))('[HI3] %s: the answers stay the same, while it is in use', async (deed) => {
    const { log, dir, path, wanted } = await kept();
    const cache = new HistoryCache(log, dir);
    await cache.page(ROW, { limit: 1 });
    deeds[deed]?.(path);
    expect(bare(await whole(cache))).toEqual(wanted);
    await write(log, ROW, [promptEvent('next', 'next'), textEvent('done')]);
    expect(bare(await whole(cache)).slice(0, wanted.length)).toEqual(wanted);
    expect(bare(await whole(cache))).toHaveLength(wanted.length + 2);
    cache.close();
  });

  it('[HI3] scribbled over at random, 300 times, while it is in use: the answers stay the same', async () => {
    const { log, dir, path } = await kept(20);
    const updates = story(20).updates;
    const random = seededRandom(4);
    const cache = new HistoryCache(log, dir);
    for (let round = 0; round < 300; round++) {
      expect(bare(await whole(cache))).toEqual(expected(updates));
      if (existsSync(path)) {
        const fd = openSync(path, 'r+');
        const { size } = statSync(path);
        const bytes = Buffer.from(
          Array.from({ length: 1 + Math.floor(random() * 100) }, () => Math.floor(random() * 256)),
        );
        writeSync(fd, bytes, 0, bytes.length, Math.floor(random() * (random() < 0.3 ? 140 : size)));
        if (random() < 0.1) ftruncateSync(fd, Math.floor(random() * size));
        closeSync(fd);
      }
      const update = { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: ` ${round}` } };
      if (random() < 0.5) {
        updates.push(update);
        await write(log, ROW, [updateEvent(update)]);
      }
    }
    cache.close();
  });

  it('[HI3] an older copy that is whole is caught up, and one of another log is not used', async () => {
    const { log, dir, path } = await kept(10);
    const old = readFileSync(path);
    const { events, updates } = story(30);
    await write(log, ROW, events.slice(log.lastSeq(1)));
    const cache = new HistoryCache(log, dir);
    await cache.page(ROW);
    cache.close();
    writeFileSync(path, old);
    const again = new HistoryCache(log, dir);
    expect(bare(await whole(again))).toEqual(expected(updates));
    again.close();
    // The same session number in a log where other things happened.
    const other = new MemoryEventLog();
    await write(other, ROW, [...events.slice(0, 30), ...Array.from({ length: 300 }, () => textEvent('x'))]);
    const foreign = new HistoryCache(other, dir);
    expect(JSON.stringify(await whole(foreign))).not.toContain('question 9');
    foreign.close();
  });

  it('[HI2] of another reducer version are made anew', async () => {
    const { log, dir, path, wanted } = await kept();
    const bytes = readFileSync(path);
    // The newer of the two slots names the root, in which the version is changed with its checksums.
    const slot = bytes.readUInt32BE(4) > bytes.readUInt32BE(68) ? 0 : 64;
    const offset = bytes.readUIntBE(slot + 8, 6);
    const length = bytes.readUInt32BE(slot + 14);
    const root = bytes.toString('latin1', offset, offset + length);
    expect(root).toContain(`"reducer":${REDUCER_VERSION}`);
    bytes.write(root.replace(`"reducer":${REDUCER_VERSION}`, `"reducer":9`), offset, 'latin1');
    bytes.writeUInt32BE(crc32(bytes.subarray(offset, offset + length)), slot + 18);
    bytes.writeUInt32BE(crc32(bytes.subarray(slot, slot + 22)), slot + 22);
    writeFileSync(path, bytes);
    const before = birth(path);
    const cache = new HistoryCache(log, dir);
    expect(bare(await whole(cache))).toEqual(wanted);
    expect(birth(path)).not.toBe(before);
    cache.close();
  });

  it('[HI2] go when the operating system was started again', async () => {
    const { dir, path } = await kept();
    expect(prepareCacheDir(dir)).toBe(true);
    expect(existsSync(path)).toBe(true);
    writeFileSync(join(dir, 'boot-id'), 'another');
    expect(prepareCacheDir(dir)).toBe(true);
    expect(readdirSync(dir)).toEqual(['boot-id']);
  });

  it('go with their session', async () => {
    const { log, dir, path } = await kept();
    const cache = new HistoryCache(log, dir);
    await cache.page(ROW);
    cache.forget(1);
    expect(existsSync(path)).toBe(false);
    cache.close();
  });

  it('do not grow without end', async () => {
    const { log, dir, path } = await kept(1);
    const cache = new HistoryCache(log, dir);
    for (let round = 0; round < 200; round++) {
      await write(log, ROW, [textEvent('y'.repeat(5000))]);
      await cache.page(ROW, { limit: 1 });
    }
    // 200 versions of a message that grows to 1 MB would be 100 MB.
    expect(statSync(path).size).toBeLessThan(20_000_000);
    cache.close();
  });
});
