/**
 * The chat history of a session of 100,000 events on LMDB: time to build the cache, time of a warm page, of a page after
 * one more event and of the first page of a new process, and how much memory building took.
 *
 *   node --expose-gc dist/test/bench/history.js
 */
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { HistoryCache } from '../../storage/history-cache.ts';
import { cacheDir, historyPath } from '../../storage/history-dir.ts';
import { openLmdbEventLog } from '../../storage/lmdb-event-log.ts';
import { sessionRow } from '../support/session-row.ts';
import { promptEvent, textEvent, turnEnd, updateEvent, write, type WrittenEvent } from '../support/written-log.ts';

const EVENTS = 100_000;
const MIB = 1024 * 1024;
const ROW = sessionRow(1);

/** Turns of a prompt, thoughts, five tool calls with results, and an answer. */
function turn(number: number): WrittenEvent[] {
  const turnId = `turn-${number}`;
  const tools = Array.from({ length: 5 }, (_, i) => {
    const toolCallId = `call-${number}-${i}`;
    return [
      updateEvent({
        sessionUpdate: 'tool_call',
        toolCallId,
        title: 'Read a file',
        kind: 'read',
        status: 'in_progress',
      }),
      updateEvent({ sessionUpdate: 'tool_call_update', toolCallId, status: 'completed', rawOutput: 'o'.repeat(400) }),
    ];
  });
  return [
    promptEvent(turnId, `question ${number}: ${'q'.repeat(100)}`),
    textEvent('t'.repeat(500), 'agent_thought_chunk'),
    ...tools.flat(),
    textEvent('a'.repeat(1000)),
    turnEnd(turnId),
  ];
}

function anonymousBytes(): number {
  globalThis.gc?.();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

async function timed<T>(run: () => Promise<T>): Promise<number> {
  const started = performance.now();
  await run();
  return performance.now() - started;
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}

const dir = mkdtempSync(join(tmpdir(), 'acp-history-'));
const log = await openLmdbEventLog(dir, { minFreeBytes: 0, ballastBytes: 1024 });
try {
  for (let number = 1; log.lastSeq(1) < EVENTS; ) {
    const events: WrittenEvent[] = [];
    while (events.length < 500) events.push(...turn(number++));
    await write(log, ROW, events);
  }
  // Twice: once for the time, once for the memory, for which garbage is collected all the time.
  const quick = new HistoryCache(log, cacheDir(dir));
  const build = await timed(() => quick.page(ROW));
  quick.forget(1);
  const before = anonymousBytes();
  let peak = 0;
  let longest = 0;
  let last = performance.now();
  const watch = setInterval(() => {
    peak = Math.max(peak, anonymousBytes());
  }, 100);
  const beat = setInterval(() => {
    const now = performance.now();
    longest = Math.max(longest, now - last);
    last = now;
  }, 1);
  let cache = new HistoryCache(log, cacheDir(dir));
  await cache.page(ROW);
  clearInterval(watch);
  clearInterval(beat);
  const kept = anonymousBytes() - before;
  const warm: number[] = [];
  const behind: number[] = [];
  for (let i = 0; i < 50; i++) warm.push(await timed(() => cache.page(ROW, { limit: 50 })));
  for (let i = 0; i < 50; i++) {
    await write(log, ROW, [textEvent('more')]);
    behind.push(await timed(() => cache.page(ROW, { limit: 50 })));
  }
  cache.close();
  cache = new HistoryCache(log, cacheDir(dir));
  const first = await timed(() => cache.page(ROW, { limit: 50 }));
  const figures = {
    events: log.lastSeq(1),
    logMiB: Math.round(log.bytes() / MIB),
    cacheMiB: Math.round(statSync(historyPath(cacheDir(dir), 1)).size / MIB),
    buildMs: Math.round(build),
    longestPauseMs: Math.round(longest),
    warmPageMs: Number(median(warm).toFixed(2)),
    warmPageMaxMs: Number(Math.max(...warm).toFixed(2)),
    pageAfterEventMs: Number(median(behind).toFixed(2)),
    firstPageOfProcessMs: Number(first.toFixed(2)),
    peakMiBWhileBuilding: Number(((peak - before) / MIB).toFixed(1)),
    keptMiB: Number((kept / MIB).toFixed(1)),
  };
  process.stdout.write(`${JSON.stringify(figures)}\n`);
  cache.close();
} finally {
  await log.close();
  rmSync(dir, { recursive: true });
}
