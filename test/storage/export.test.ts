import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { stringifyWire } from '../../protocol/wire-text.ts';
import { encodeRecord } from '../../storage/event-codec.ts';
import type { EventLog, SessionRow } from '../../storage/event-log.ts';
import { exportSession, importSession, type ImportOutcome } from '../../storage/export.ts';
import { GroupCommit } from '../../storage/group-commit.ts';
import { MemoryEventLog } from '../../storage/memory-event-log.ts';
import { anyUpdate } from '../support/random-updates.ts';
import { testScope } from '../support/scope.ts';
import { sessionRow } from '../support/session-row.ts';
import { tempDir } from '../support/temp-dir.ts';
import { promptEvent, textEvent, turnEnd, updateEvent, write } from '../support/written-log.ts';
import { propertyRuns } from '../support/properties.ts';

const ROW = sessionRow(1, { sessionId: 'séssion', title: 'é😀', additionalDirectories: ['/a'], bound: ['agent-1'] });

function recordsOf(log: EventLog, row: SessionRow): string[] {
  const records: string[] = [];
  log.scan(row.num, row.low, log.lastSeq(row.num), (_seq, record, length) => {
    records.push(record.toString('hex', 0, length));
    return true;
  });
  return records;
}

async function exported(log: EventLog, row: SessionRow, file: string): Promise<string> {
  let text = '';
  const outcome = await exportSession(log, row, 5000, (wire) => void (text += wire));
  expect(outcome.outcome).toBe('exported');
  writeFileSync(file, text, 'latin1');
  return readFileSync(file, 'utf8');
}

function imported(log: EventLog, file: string, sessionId?: string): Promise<ImportOutcome> {
  const commit = new GroupCommit(log, { onFailed: () => undefined });
  return importSession({ log, commit, file, sessionId, now: 7000 });
}

/** A log with everything that a record can have. */
async function fullLog(): Promise<MemoryEventLog> {
  const log = new MemoryEventLog();
  await write(log, ROW, [
    { type: 'session_created', required: true, payload: '{"sessionId":"séssion"}'.replace('é', '\xc3\xa9') },
    promptEvent('turn-1', 'hello é😀\u2028'),
    { type: 'update', kind: 5, payload: '{"a":1.0e400,"b":12345678901234567890,"\\u00e9":[ 1 , 2 ]}', meta: '{"x":1}' },
    {
      type: 'update',
      payload: '{}',
      paramsRest: '"p":{"q":[]},"r":2',
      envelopeRest: '"e":"\\n"',
      childSessionId: 'child',
    },
    { type: 'turn_started', turnId: 'turn-2', payload: '{\n  "prompt": [\r\n  ]\n}' },
    updateEvent({ sessionUpdate: 'tool_call', toolCallId: 't\u0000é' }, { toolCallId: 't', synthetic: true }),
    turnEnd('turn-1'),
  ]);
  const payload = stringifyWire({ sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: 'abc' } });
  const at = payload.indexOf('abc');
  const text = encodeRecord(
    { type: 'update', time: 1, payload },
    { boot: 'abcdef', kind: 2, text: { start: at, end: at + 3 } },
  );
  const alien = encodeRecord({ type: 'update', time: 2, payload: 'not JSON' }, { boot: 'b' });
  alien[1] = 99;
  const { crc32 } = await import('node:zlib');
  alien.writeUInt32BE(crc32(alien.subarray(0, alien.length - 4)), alien.length - 4);
  await log.commit({ appends: [{ num: 1, firstSeq: 8, records: [text, alien] }], rows: [] });
  return log;
}

describe('export and import', () => {
  it('[ST1] an imported session has the same records, byte for byte, and a log id of its own', async () => {
    const log = await fullLog();
    const file = join(tempDir(testScope()), 'x.ndjson');
    const text = await exported(log, ROW, file);
    const lines = text.trimEnd().split('\n');
    expect(JSON.parse(lines[0] ?? '')).toMatchObject({
      format: 'acp-sidecar-export',
      version: 1,
      events: 9,
      firstSeq: 1,
    });
    expect(lines).toHaveLength(11);
    for (const line of lines) JSON.parse(line);
    expect(lines[2]).toContain('hello é😀');
    const digest = createHash('sha256')
      .update(`${lines.slice(0, -1).join('\n')}\n`)
      .digest('hex');
    expect(JSON.parse(lines.at(-1) ?? '')).toEqual({ format: 'acp-sidecar-export-end', events: 9, sha256: digest });

    const other = new MemoryEventLog();
    const outcome = await imported(other, file);
    if (outcome.outcome !== 'imported') throw new Error(JSON.stringify(outcome));
    expect(outcome.events).toBe(9);
    expect(recordsOf(other, outcome.row)).toEqual(recordsOf(log, ROW));
    const { num: _num, logId, ...facts } = outcome.row;
    const { num: _old, logId: oldLogId, ...known } = ROW;
    expect(facts).toEqual(known);
    expect(logId).not.toBe(oldLogId);
  });

  it('[ST1] any updates survive', async () => {
    const file = join(tempDir(testScope()), 'x.ndjson');
    await fc.assert(
      fc.asyncProperty(fc.array(anyUpdate, { maxLength: 30 }), async (updates) => {
        const log = new MemoryEventLog();
        await write(log, ROW, [promptEvent('t', 'x'), ...updates.map((update) => updateEvent(update))]);
        await exported(log, ROW, file);
        const other = new MemoryEventLog();
        const outcome = await imported(other, file);
        expect(outcome.outcome === 'imported' && recordsOf(other, outcome.row)).toEqual(recordsOf(log, ROW));
      }),
      propertyRuns(50),
    );
  });

  it('[ST2] an id that exists is refused, another id is not; the copy lets go of the session of the agent', async () => {
    const log = await fullLog();
    const file = join(tempDir(testScope()), 'x.ndjson');
    await exported(log, ROW, file);
    expect(await imported(log, file)).toMatchObject({ outcome: 'refused', why: 'exists' });
    expect(await imported(log, file, 'a\u0000b')).toMatchObject({ outcome: 'refused', why: 'malformed' });
    const outcome = await imported(log, file, 'copy');
    if (outcome.outcome !== 'imported') throw new Error(JSON.stringify(outcome));
    expect(outcome.row).toMatchObject({ sessionId: 'copy', bound: [], low: 1 });
    expect(recordsOf(log, outcome.row).slice(0, 9)).toEqual(recordsOf(log, ROW));
    // type 13: session_forked
    expect(recordsOf(log, outcome.row)[9]?.slice(2, 4)).toBe('0d');
    // A deleted id stays deleted.
    await log.commit({ appends: [], rows: [{ ...ROW, tombstone: true }] });
    expect(await imported(log, file)).toMatchObject({ outcome: 'refused', why: 'exists' });
  });

  it('[ST2] a file that was cut off at any line, or in one, is refused and leaves nothing behind', async () => {
    const log = await fullLog();
    const file = join(tempDir(testScope()), 'x.ndjson');
    const text = await exported(log, ROW, file);
    const lines = text.trimEnd().split('\n');
    const bad = [
      ...lines.map((_, i) => lines.slice(0, i).join('\n')),
      ...lines.map((_, i) => lines.filter((_line, j) => j !== i).join('\n')),
      ...lines.map((line, i) => [...lines.slice(0, i), line.slice(0, -5)].join('\n')),
      `${text}{}`,
      text.replace('hello', 'hullo'),
      text.replace('"time":"1970', '"time":"1971'),
      text.replace('"x":1', '"x":2'),
      `{"format":"acp-sidecar-export"}\n${text}`,
      'hello',
      'no line end'.repeat(200_000),
    ];
    for (const content of bad) {
      writeFileSync(file, content);
      const other = new MemoryEventLog();
      expect(await imported(other, file), content.slice(-200)).toMatchObject({ outcome: 'refused', why: 'malformed' });
      expect(other.batches).toEqual([]);
    }
    writeFileSync(file, text.replace('"version":1', '"version":2'));
    expect(await imported(new MemoryEventLog(), file)).toMatchObject({ outcome: 'refused', why: 'newer' });
    // Other line ends are no change.
    writeFileSync(file, text.replaceAll('\n', '\r\n'));
    expect((await imported(new MemoryEventLog(), file)).outcome).toBe('imported');
  });

  it('[ST2] a full disk leaves no session behind', async () => {
    const log = await fullLog();
    const file = join(tempDir(testScope()), 'x.ndjson');
    await exported(log, ROW, file);
    const other = new MemoryEventLog();
    other.failNext('no_space');
    expect((await imported(other, file)).outcome).toBe('not_committed');
    expect([...other.rows()]).toEqual([]);
  });

  it('a log that is damaged is not exported', async () => {
    const log = new MemoryEventLog();
    await write(log, ROW, [textEvent('a'), textEvent('b'), textEvent('c')]);
    log.remove(1, 2);
    expect(await exportSession(log, ROW, 0, () => undefined)).toEqual({
      outcome: 'damaged',
      seq: 2,
      detail: 'it is missing',
    });
  });
});
