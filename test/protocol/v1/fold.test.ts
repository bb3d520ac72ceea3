import { readdirSync, readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { foldUpdate, transcriptOf } from '../../../protocol/v1/fold.ts';
import { emptyTranscript, type MessageEntry, textOfPieces, type Transcript } from '../../../protocol/v1/transcript.ts';
import { jsonValue, propertyRuns } from '../../support/properties.ts';

type Update = Record<string, unknown>;

const text = (kind: string, words: string, more: Update = {}): Update => ({
  sessionUpdate: kind,
  content: { type: 'text', text: words },
  ...more,
});
const agent = (words: string, more: Update = {}): Update => text('agent_message_chunk', words, more);
const tool = (toolCallId: string, more: Update = {}): Update => ({
  sessionUpdate: 'tool_call',
  toolCallId,
  title: 'Read',
  ...more,
});
const patchOf = (toolCallId: string, more: Update): Update => ({
  sessionUpdate: 'tool_call_update',
  toolCallId,
  ...more,
});

/** The entries in one line each. */
function outline(transcript: Transcript): string[] {
  return transcript.entries.map((entry) => {
    if (entry.type === 'message') return `${entry.role} ${entry.messageId ?? '-'}: ${textOfPieces(entry.pieces)}`;
    if (entry.type === 'tool_call') return `tool ${entry.toolCallId} ${JSON.stringify(entry.fields)}`;
    return `${entry.type} ${entry.id} ${JSON.stringify(entry.fields)} ${textOfPieces(entry.pieces)}`;
  });
}

describe('messages', () => {
  it('[FO2] join chunks of one kind and end at another kind', () => {
    const stream = [agent('a'), agent('b'), text('agent_thought_chunk', 'c'), agent('d')];
    expect(outline(transcriptOf(stream))).toEqual(['agent -: ab', 'thought -: c', 'agent -: d']);
  });

  it('[FO2] end where the messageId changes; null and absent are the same and take the id that follows', () => {
    const stream = [
      agent('a', { messageId: null }),
      agent('b'),
      agent('c', { messageId: 'm1' }),
      agent('d'),
      agent('e', { messageId: 'm2' }),
    ];
    expect(outline(transcriptOf(stream))).toEqual(['agent m1: abcd', 'agent m2: e']);
  });

  it('[FO2] end at a new tool call, not at a patch of a known one nor at a snapshot', () => {
    const stream = [
      agent('a'),
      tool('t1'),
      agent('b'),
      patchOf('t1', { status: 'completed' }),
      { sessionUpdate: 'usage_update', used: 1, size: 2 },
      tool('t1', { kind: 'read' }),
      agent('c'),
    ];
    expect(outline(transcriptOf(stream))).toEqual([
      'agent -: a',
      'tool t1 {"title":"Read","status":"completed","kind":"read"}',
      'agent -: bc',
    ]);
  });

  it('keep other blocks, annotated text and the _meta of chunks apart', () => {
    const image = { type: 'image', data: 'AA==', mimeType: 'image/png' };
    const noted = { type: 'text', text: 'n', annotations: { priority: 1 } };
    const entry = transcriptOf([
      agent('a'),
      { sessionUpdate: 'agent_message_chunk', content: image },
      agent('b'),
      agent('c', { _meta: { k: 1 } }),
      agent('d', { _meta: { k: 1 } }),
      agent('e', { _meta: { k: 2 } }),
      { sessionUpdate: 'agent_message_chunk', content: noted },
      agent('f', { future: 1 }),
      agent('g', { future: 1 }),
    ]).entries[0] as MessageEntry;
    expect(entry.pieces).toEqual([
      { content: { type: 'text', text: 'a' } },
      { content: image },
      { content: { type: 'text', text: 'b' } },
      { content: { type: 'text', text: 'cd' }, chunk: { _meta: { k: 1 } } },
      { content: { type: 'text', text: 'e' }, chunk: { _meta: { k: 2 } } },
      { content: noted },
      { content: { type: 'text', text: 'f' }, chunk: { future: 1 } },
      { content: { type: 'text', text: 'g' }, chunk: { future: 1 } },
    ]);
  });
});

describe('tool calls', () => {
  it('[FO3] keep their place, and take of each field the last value that is not null', () => {
    const stream = [
      patchOf('early', { title: 'T', rawOutput: null }),
      agent('x'),
      tool('early', { name: null, content: [1] }),
      patchOf('early', { title: null, content: [2, 3], rawInput: 0 }),
    ];
    expect(outline(transcriptOf(stream))).toEqual([
      'tool early {"title":"Read","content":[2,3],"rawInput":0}',
      'agent -: x',
    ]);
  });

  it('[FO3] keep every _meta, for extensions stream through it', () => {
    const transcript = transcriptOf([
      tool('t', { _meta: { terminal_info: 1 } }),
      patchOf('t', { _meta: { terminal_output_delta: 'a' } }),
      patchOf('t', { _meta: { terminal_output_delta: 'a' } }),
    ]);
    expect(transcript.entries[0]).toMatchObject({
      metas: [{ terminal_info: 1 }, { terminal_output_delta: 'a' }, { terminal_output_delta: 'a' }],
    });
  });
});

describe('entities that are patched by id', () => {
  it('[FO4] a compaction that streamed and one that is materialised are the same', () => {
    const chunk = (words: string): Update => ({
      ...text('compaction_summary_chunk', words),
      compactionId: 'c',
    });
    const streamed = transcriptOf([
      chunk('the '),
      agent('meanwhile'),
      chunk('sum'),
      { sessionUpdate: 'compaction_update', compactionId: 'c', status: 'completed' },
    ]);
    const summary = [{ type: 'text', text: 'the sum' }];
    const whole = transcriptOf([
      { sessionUpdate: 'compaction_update', compactionId: 'c', status: 'completed', summary },
      agent('meanwhile'),
    ]);
    expect(streamed).toEqual(whole);
    foldUpdate(whole, { sessionUpdate: 'compaction_update', compactionId: 'c', status: 'failed', summary: null });
    expect(outline(whole)[0]).toBe('compaction c {"status":"failed"} ');
  });

  it('[FO4] null clears a field of a subagent and of a session message, absence does not', () => {
    const stream = [
      { sessionUpdate: 'subagent_update', sessionId: 's', title: 'A', description: 'B' },
      {
        sessionUpdate: 'session_message',
        messageId: 'm',
        senderSessionId: 's',
        content: [{ type: 'text', text: 'q' }],
      },
      { sessionUpdate: 'session_message_chunk', messageId: 'm', content: { type: 'text', text: 'r' } },
      { sessionUpdate: 'subagent_update', sessionId: 's', title: null },
    ];
    expect(outline(transcriptOf(stream))).toEqual([
      'subagent s {"description":"B"} ',
      'session_message m {"senderSessionId":"s"} qr',
    ]);
  });
});

describe('state beside the entries', () => {
  it('[FO5] holds the last value of each', () => {
    const transcript = transcriptOf([
      { sessionUpdate: 'plan', entries: [1] },
      { sessionUpdate: 'plan', entries: [2], _meta: { sidecar: { synthetic: true } } },
      { sessionUpdate: 'plan_update', plan: { type: 'markdown', planId: 'p', content: 'x' } },
      { sessionUpdate: 'plan_update', plan: { type: 'markdown', planId: '__proto__', content: 'y' } },
      { sessionUpdate: 'plan_removed', planId: 'p' },
      { sessionUpdate: 'current_mode_update', currentModeId: 'ask' },
      { sessionUpdate: 'config_option_update', configOptions: [{ id: 'o' }] },
      { sessionUpdate: 'available_commands_update', availableCommands: [{ name: 'c' }] },
      { sessionUpdate: 'usage_update', used: 1, size: 9, cost: { amount: 1 } },
      { sessionUpdate: 'usage_update', used: 2, size: 9 },
      { sessionUpdate: 'session_info_update', title: 'T', updatedAt: 'now' },
      { sessionUpdate: 'session_info_update', updatedAt: null },
      { sessionUpdate: 'notice', severity: 'info', title: 'gone' },
    ]);
    expect(transcript).toEqual({
      ...emptyTranscript(),
      plan: { entries: [2] },
      plans: Object.fromEntries([['__proto__', { plan: { type: 'markdown', planId: '__proto__', content: 'y' } }]]),
      mode: 'ask',
      configOptions: [{ id: 'o' }],
      commands: [{ name: 'c' }],
      usage: { used: 2, size: 9 },
      info: { title: 'T' },
    });
  });

  it('[FO6] keeps what it does not understand, and where it came', () => {
    const odd = [
      null,
      'text',
      { sessionUpdate: 'from_the_future', a: 1 },
      { sessionUpdate: 'agent_message_chunk', content: 'not a block' },
      { sessionUpdate: 'tool_call', title: 'no id' },
      { sessionUpdate: 'current_mode_update' },
      { sessionUpdate: 'toString' },
    ];
    const transcript = transcriptOf([agent('a'), ...odd, agent('b')]);
    expect(outline(transcript)).toEqual(['agent -: ab']);
    expect(transcript.unknown).toEqual(odd.map((update) => ({ at: 1, update })));
  });

  it('stamps an entry with the eventId of the update that made it', () => {
    const transcript = emptyTranscript();
    foldUpdate(transcript, agent('a'), { eventId: 'log-1' });
    foldUpdate(transcript, agent('b'), { eventId: 'log-2' });
    foldUpdate(transcript, tool('t'), { eventId: 'log-3' });
    foldUpdate(transcript, patchOf('t', { status: 'failed' }), { eventId: 'log-4' });
    expect(transcript.entries.map((entry) => entry.eventId)).toEqual(['log-1', 'log-3']);
  });
});

// ---- Properties

const ids = fc.constantFrom('m1', 'm2', null, undefined);
const metas = fc.constantFrom<Update | undefined>(undefined, undefined, undefined, { v: 1 }, { v: 2 });
const optional = (more: Update): Update =>
  Object.fromEntries(Object.entries(more).filter(([, value]) => value !== undefined));
const words = fc.string({ unit: 'grapheme', maxLength: 8 });

const chunks = fc
  .record({
    kind: fc.constantFrom('user_message_chunk', 'agent_message_chunk', 'agent_thought_chunk'),
    words,
    messageId: ids,
    _meta: metas,
  })
  .map(({ kind, words: said, ...more }) => text(kind, said, optional(more)));
const patches = fc
  .record({
    toolCallId: fc.constantFrom('t1', 't2'),
    sessionUpdate: fc.constantFrom('tool_call', 'tool_call_update'),
    title: fc.constantFrom(undefined, null, 'A', 'B'),
    status: fc.constantFrom(undefined, null, 'pending', 'completed'),
    rawOutput: fc.option(jsonValue({ maxDepth: 1 }), { nil: undefined }),
    _meta: metas,
  })
  .map(optional);
const others = fc.oneof(
  fc.record({ sessionUpdate: fc.constant('plan'), entries: fc.array(fc.nat(3), { maxLength: 2 }) }),
  fc.record({ sessionUpdate: fc.constant('usage_update'), used: fc.nat(9), size: fc.constant(9) }),
  fc.record({ sessionUpdate: fc.constant('current_mode_update'), currentModeId: fc.constantFrom('ask', 'code') }),
  fc.record({ sessionUpdate: fc.constant('session_info_update'), title: fc.constantFrom('T', null) }),
  fc.record({ sessionUpdate: fc.constant('unheard_of'), n: fc.nat(9) }),
  fc.record({
    sessionUpdate: fc.constant('compaction_summary_chunk'),
    compactionId: fc.constant('c'),
    content: words.map((said) => ({ type: 'text', text: said })),
  }),
  fc.record({
    sessionUpdate: fc.constant('agent_message_chunk'),
    content: fc.constant({ type: 'image', data: 'A' }),
    messageId: fc.constantFrom('m1', 'm2'),
  }),
);
const streams: fc.Arbitrary<Update[]> = fc.array(
  fc.oneof({ weight: 5, arbitrary: chunks }, { weight: 2, arbitrary: patches }, { weight: 2, arbitrary: others }),
  { maxLength: 30 },
);

const isText = (update: Update): boolean => (update['content'] as Update | undefined)?.['type'] === 'text';
const wordsOf = (update: Update): string => (update['content'] as { text: string }).text;
const withWords = (update: Update, said: string): Update => ({ ...update, content: { type: 'text', text: said } });

/** Cuts every text at the given places (modulo its length, also inside surrogate pairs), which may make empty pieces. */
function rechunk(stream: readonly Update[], cuts: readonly number[]): Update[] {
  let next = 0;
  return stream.flatMap((update) => {
    if (!isText(update)) return [update];
    const said = wordsOf(update);
    // With _meta an empty chunk is no longer "nothing": the agent's own is kept, and no relay makes new ones.
    if (said.length < 2) return [update];
    const cut = 1 + ((cuts[next++ % cuts.length] ?? 0) % (said.length - 1));
    return [withWords(update, said.slice(0, cut)), withWords(update, said.slice(cut))];
  });
}

/** Joins neighbouring texts that differ in nothing else, as the log does. */
function join(stream: readonly Update[]): Update[] {
  const out: Update[] = [];
  const head = (update: Update): string =>
    JSON.stringify([update['sessionUpdate'], update['messageId'] ?? null, update['compactionId'], update['_meta']]);
  for (const update of stream) {
    const last = out.at(-1);
    if (last && isText(last) && isText(update) && head(last) === head(update)) {
      out[out.length - 1] = withWords(last, wordsOf(last) + wordsOf(update));
    } else out.push(update);
  }
  return out;
}

const SNAPSHOTS = ['plan', 'usage_update', 'current_mode_update', 'session_info_update'];

describe('the fold does not see', () => {
  const cuts = fc.array(fc.nat(), { minLength: 1, maxLength: 10 });

  it('[FO1] where text was cut or joined', () => {
    fc.assert(
      fc.property(streams, cuts, (stream, at) => {
        const whole = transcriptOf(stream);
        expect(transcriptOf(rechunk(stream, at))).toEqual(whole);
        expect(transcriptOf(join(stream))).toEqual(whole);
        expect(transcriptOf(join(rechunk(stream, at)))).toEqual(whole);
      }),
      propertyRuns(500),
    );
  });

  it('[FO1] empty texts, which say nothing and end no message', () => {
    fc.assert(
      fc.property(streams, cuts, ids, (stream, at, messageId) => {
        const padded = [...stream];
        for (const place of at) padded.splice(place % (padded.length + 1), 0, agent('', optional({ messageId })));
        expect(transcriptOf(padded)).toEqual(transcriptOf(stream));
      }),
    );
  });

  it('[FO1] snapshots that are repeated', () => {
    fc.assert(
      fc.property(streams, (stream) => {
        const repeated = stream.flatMap((update) =>
          SNAPSHOTS.includes(update['sessionUpdate'] as string) ? [update, update] : [update],
        );
        expect(transcriptOf(repeated)).toEqual(transcriptOf(stream));
      }),
    );
  });

  it('[FO1] progress that a later patch overrides, or patches that were merged into one', () => {
    fc.assert(
      fc.property(streams, patches, patches, (stream, first, second) => {
        const one = { ...first, sessionUpdate: 'tool_call_update', toolCallId: 't1', _meta: null };
        const two = { ...second, sessionUpdate: 'tool_call_update', toolCallId: 't1', _meta: null };
        const present = Object.fromEntries(Object.entries(two).filter(([, value]) => value !== null));
        const merged = { ...one, ...present };
        expect(transcriptOf([tool('t1'), ...stream, one, two])).toEqual(transcriptOf([tool('t1'), ...stream, merged]));
        expect(transcriptOf([tool('t1'), two, ...stream, one, two])).toEqual(
          transcriptOf([tool('t1'), two, ...stream, merged]),
        );
        const overridden = { ...two, title: 'old', status: 'pending', rawOutput: 'old' };
        const all = { ...two, title: 'new', status: 'failed', rawOutput: 'new' };
        expect(transcriptOf([tool('t1'), ...stream, overridden, agent('x'), all])).toEqual(
          transcriptOf([tool('t1'), ...stream, agent('x'), all]),
        );
      }),
    );
  });

  it('[FO1] what the sidecar adds to _meta', () => {
    fc.assert(
      fc.property(streams, (stream) => {
        const marked = stream.map((update) => ({
          ...update,
          _meta: { ...(update['_meta'] as Update | undefined), sidecar: { code: 'TOOL_OUTCOME_UNKNOWN', n: 1 } },
        }));
        expect(transcriptOf(marked)).toEqual(transcriptOf(stream));
      }),
    );
  });

  it('[FO7] a stop in the middle with the transcript written to JSON and read again', () => {
    fc.assert(
      fc.property(streams, fc.nat(30), (stream, at) => {
        const kept = JSON.parse(JSON.stringify(transcriptOf(stream.slice(0, at)))) as Transcript;
        for (const update of stream.slice(at)) foldUpdate(kept, update);
        expect(kept).toEqual(transcriptOf(stream));
      }),
    );
  });

  it('[FO7] and never changes an update', () => {
    fc.assert(
      fc.property(streams, (stream) => {
        const before = structuredClone(stream);
        transcriptOf(stream);
        expect(stream).toEqual(before);
      }),
    );
  });
});

describe('recorded agents', () => {
  const folder = new URL('../../recordings/', import.meta.url);
  const recordings = readdirSync(folder).filter((name) => name.endsWith('.gz'));

  it.each(recordings)('[FO1] %s folds the same however its text is cut, and loses no text', (name) => {
    const bySession = new Map<string, Update[]>();
    for (const line of gunzipSync(readFileSync(new URL(name, folder)))
      .toString()
      .split('\n')) {
      if (!line) continue;
      const { dir, msg } = JSON.parse(line) as { dir: string; msg?: { method?: string; params: Update } };
      if (dir !== 'a2c' || msg?.method !== 'session/update') continue;
      const sessionId = msg.params['sessionId'] as string;
      const list = bySession.get(sessionId) ?? [];
      list.push(msg.params['update'] as Update);
      bySession.set(sessionId, list);
    }
    expect(bySession.size).toBeGreaterThan(0);
    for (const stream of bySession.values()) {
      const whole = transcriptOf(stream);
      expect(whole.unknown).toEqual([]);
      expect(transcriptOf(rechunk(stream, [7, 0, 3]))).toEqual(whole);
      expect(transcriptOf(join(stream))).toEqual(whole);
      const said = stream.filter(isText).map(wordsOf).join('');
      const folded = whole.entries.flatMap((entry) => (entry.type === 'message' ? [textOfPieces(entry.pieces)] : []));
      expect(folded.join('')).toBe(said);
    }
  });
});
