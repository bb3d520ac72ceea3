import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isObject } from '../../../protocol/json-rpc.ts';
import { classifyUpdate, type Classified } from '../../../protocol/v1/classify.ts';
import { compileTemplate, matchText } from '../../../protocol/v1/text-template.ts';
import { encodeWire, parseWire } from '../../../protocol/wire-text.ts';

function classify(text: string): Classified {
  const wire = encodeWire(text);
  const update = parseWire(wire);
  if (!isObject(update)) throw new Error('not an object');
  return classifyUpdate(wire, update);
}
const chunk = (content: string, more = ''): string =>
  `{"sessionUpdate":"agent_message_chunk","content":${content}${more}}`;

describe('classification', () => {
  it('[RN1] plain text is text; equal kinds, ids and _meta have equal keys, whatever else differs', () => {
    const keyOf = (text: string): string => {
      const classified = classify(text);
      if (classified.class !== 'text') throw new Error(classified.class);
      return classified.key;
    };
    const plain = keyOf(chunk('{"type":"text","text":"a"}'));
    expect(keyOf('{"messageId":null,"content":{"text":"b","type":"text"},"sessionUpdate":"agent_message_chunk"}')).toBe(
      plain,
    );
    const others = [
      chunk('{"type":"text","text":"a"}', ',"messageId":"m"'),
      chunk('{"type":"text","text":"a"}', ',"messageId":"n"'),
      chunk('{"type":"text","text":"a"}', ',"messageId":"null"'),
      chunk('{"type":"text","text":"a"}', ',"_meta":{"k":1}'),
      chunk('{"type":"text","text":"a"}', ',"messageId":"m","_meta":{"k":1}'),
      chunk('{"type":"text","text":"a"}', ',"messageId":"m {\\"k\\":1}"'),
      '{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"a"}}',
      '{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"a"}}',
    ].map(keyOf);
    expect(new Set([plain, ...others]).size).toBe(others.length + 1);
  });

  it('[RN1] the body of the text is found, escapes and all', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), fc.constantFrom('', ',"messageId":"é"'), (words, more) => {
        const wire = encodeWire(chunk(`{"type":"text","text":${JSON.stringify(words)}}`, more));
        const classified = classifyUpdate(wire, parseWire(wire) as Record<string, unknown>);
        if (classified.class !== 'text') throw new Error(classified.class);
        expect(parseWire(`"${wire.slice(classified.bodyStart, classified.bodyEnd)}"`)).toBe(words);
      }),
    );
  });

  it.each([
    chunk('{"type":"text","text":"a","annotations":{}}'),
    chunk('{"type":"text","text":"a","annotations":null}'),
    chunk('{"type":"text","text":"a","future":1}'),
    chunk('{"type":"text","text":"a","text":"b"}'),
    chunk('{"type":"text","text":"a"}', ',"future":1'),
    chunk('{"type":"text","text":"a"}', ',"content":{"type":"text","text":"b"}'),
    chunk('{"type":"text","text":"a"}', ',"messageId":7'),
    chunk('{"type":"text","text":1}'),
    chunk('{"type":"image","data":""}'),
    chunk('"text"'),
    '{"sessionUpdate":"agent_message_chunk"}',
  ])('[RN5] %s is an event of its own', (text) => {
    expect(classify(text).class).toBe('event');
  });

  it('[TR1] a patch of a tool call that holds only known fields may be progress; null is unchanged', () => {
    const patch =
      '{"sessionUpdate":"tool_call_update","toolCallId":"t","title":null,"content":[ 1.0 ],"status":"in_progress"}';
    expect(classify(patch)).toMatchObject({
      class: 'progress',
      toolCallId: 't',
      status: 'in_progress',
      fields: new Map([
        ['content', '[ 1.0 ]'],
        ['status', '"in_progress"'],
      ]),
    });
  });

  it.each([
    '{"sessionUpdate":"tool_call","toolCallId":"t","title":"T"}',
    '{"sessionUpdate":"tool_call_update","toolCallId":"t","_meta":{}}',
    '{"sessionUpdate":"tool_call_update","toolCallId":"t","future":1}',
    '{"sessionUpdate":"tool_call_update","toolCallId":"t","title":"a","title":"b"}',
    '{"sessionUpdate":"tool_call_update","toolCallId":"t","status":5}',
  ])('[TR1] %s is an event', (text) => {
    expect(classify(text)).toMatchObject({ class: 'tool', toolCallId: 't' });
  });

  it('[TR5] commands, mode, options and info are snapshots; plans and usage are events', () => {
    const classOf = (kind: string): string => classify(`{"sessionUpdate":"${kind}"}`).class;
    for (const kind of [
      'available_commands_update',
      'current_mode_update',
      'config_option_update',
      'session_info_update',
    ]) {
      expect(classOf(kind), kind).toBe('snapshot');
    }
    for (const kind of ['plan', 'plan_update', 'usage_update', 'compaction_update', 'subagent_update']) {
      expect(classOf(kind), kind).toBe('event');
    }
    expect(classOf('notice')).toBe('transient');
  });

  it('[EV5] what is not understood is an event', () => {
    for (const text of [
      '{}',
      '{"sessionUpdate":7}',
      '{"sessionUpdate":"toString"}',
      '{"sessionUpdate":"future"}',
      '{"sessionUpdate":"tool_call"}',
    ]) {
      expect(classify(text)).toMatchObject({ class: 'event' });
    }
  });
});

describe('the template of a text line', () => {
  const prefix =
    '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s.*","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"';
  const suffix = '"}}}}';
  const template = compileTemplate(`${prefix}first${suffix}`, prefix.length, prefix.length + 5, 'owner');

  it('[RN1] matches lines that differ in nothing but the text, and joins their texts', () => {
    if (!template) throw new Error('no template');
    const words = fc.array(fc.string({ unit: 'grapheme', minLength: 1 }), { minLength: 1, maxLength: 5 });
    fc.assert(
      fc.property(words, fc.constantFrom('\n', '\r\n'), fc.nat(20), (texts, end, at) => {
        const bodies = texts.map((text) => encodeWire(JSON.stringify(text).slice(1, -1)));
        const lines = bodies.map((body) => prefix + body + suffix + end).join('');
        const text = `${'x'.repeat(at)}${lines}next`;
        expect(matchText(template, text, at, 1e6)).toEqual({ body: bodies.join(''), next: text.length - 4 });
      }),
    );
  });

  it('[RN1] stops at the bound, and before a line without a text', () => {
    if (!template) throw new Error('no template');
    const line = `${prefix}abc${suffix}\n`;
    expect(matchText(template, line.repeat(3), 0, 4)).toEqual({ body: 'abcabc', next: line.length * 2 });
    expect(matchText(template, `${line}${prefix}${suffix}\n`, 0, 1e6)).toEqual({ body: 'abc', next: line.length });
    expect(matchText(template, `${prefix}${suffix}\n`, 0, 1e6)).toBeUndefined();
  });

  it('[RN1] matches nothing else', () => {
    if (!template) throw new Error('no template');
    const lines = [
      `${prefix}a"b${suffix}\n`,
      `${prefix}a\\${suffix}\n`,
      `${prefix}a\\x${suffix}\n`,
      `${prefix}a\\u12${suffix}\n`,
      `${prefix}a\tb${suffix}\n`,
      `${prefix}a${suffix}`,
      `${prefix}a${suffix} \n`,
      `${prefix}a","text":"b${suffix}\n`,
      `${prefix.replace('s.*', 'sxx')}a${suffix}\n`,
      ` ${prefix}a${suffix}\n`,
    ];
    for (const line of lines) expect(matchText(template, line, 0, 1e6), line).toBeUndefined();
  });

  it('[RN1] is not made where another member decides what the text is', () => {
    const late = `"},"content":{"type":"text","text":"other"}}}}`;
    expect(compileTemplate(`${prefix}first${late}`, prefix.length, prefix.length + 5, 'owner')).toBeUndefined();
    expect(
      compileTemplate(`${prefix}${'x'.repeat(300_000)}${suffix}`, prefix.length, prefix.length + 300_000, 'o'),
    ).toBeUndefined();
  });
});
