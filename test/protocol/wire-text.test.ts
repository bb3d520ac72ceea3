import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  addMember,
  decodeWire,
  encodeWire,
  items,
  member,
  memberAt,
  members,
  parseWire,
  removeMembers,
  setValue,
  splice,
  stringifyWire,
  valueAt,
  valueEnd,
} from '../../protocol/wire-text.ts';
import { propertyRuns } from '../support/properties.ts';

// ---- JSON text as nobody would write it but everybody may send it

const space = fc.constantFrom('', '', '', ' ', '\t', '\n', '\r\n', '  ');
const KEYS = [
  'a',
  'b',
  'c',
  'id',
  'é',
  '日本',
  '__proto__',
  'toString',
  'a"b',
  'back\\slash',
  '',
  '\u{1F600}',
  '\ud800',
];

/** The text of a JSON string, each character perhaps escaped although it need not be. */
function stringText(value: string, escape: readonly boolean[]): string {
  let text = '"';
  for (let i = 0; i < value.length; i++) {
    const unit = value.charAt(i);
    const code = value.charCodeAt(i);
    const lone = code >= 0xd800 && code <= 0xdfff && !/^[\ud800-\udbff][\udc00-\udfff]/.test(value.slice(i, i + 2));
    if (!lone && code >= 0xd800 && code <= 0xdbff && !escape[i % escape.length]) text += value.slice(i, i++ + 2);
    else if (lone || escape[i % escape.length]) text += `\\u${code.toString(16).padStart(4, '0')}`;
    else text += JSON.stringify(unit).slice(1, -1);
  }
  return `${text}"`;
}
const escapes = fc.array(fc.boolean(), { minLength: 1, maxLength: 5 });
const strings = fc.oneof(
  fc.tuple(fc.string({ unit: 'grapheme' }), escapes).map(([value, escape]) => stringText(value, escape)),
  fc.constantFrom(
    '"\\\\"',
    '"\\\\\\""',
    '"{[,:]}"',
    '"\\/\\b\\f\\n\\r\\t"',
    '"\\ud83d\\ude00"',
    '"\ufeff\u2028"',
    '""',
  ),
);
const keys = fc.tuple(fc.constantFrom(...KEYS), escapes).map(([key, escape]) => stringText(key, escape));
const literals = fc.constantFrom('null', 'true', 'false', '0', '-0', '1.0', '1e400', '-1E-7', '9007199254740993');

const { value: texts } = fc.letrec<{ value: string; object: string }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    literals,
    strings,
    tie('object'),
    fc
      .tuple(space, fc.array(fc.tuple(space, tie('value'), space), { maxLength: 4 }))
      .map(([inner, list]) => `[${inner}${list.map((part) => part.join('')).join(',')}]`),
  ),
  object: fc
    .tuple(space, fc.array(fc.tuple(space, keys, space, space, tie('value'), space), { maxLength: 5 }))
    .map(
      ([inner, list]) =>
        `{${inner}${list.map(([a, key, b, c, value, d]) => `${a}${key}${b}:${c}${value}${d}`).join(',')}}`,
    ),
}));
const objects = fc
  .tuple(space, fc.array(fc.tuple(space, keys, space, space, texts, space), { maxLength: 6 }), space)
  .map(
    ([inner, list, after]) =>
      `{${inner}${list.map(([a, key, b, c, value, d]) => `${a}${key}${b}:${c}${value}${d}`).join(',')}}${after}`,
  );

type Json = Record<string, unknown>;
const RUNS = propertyRuns(1000);

describe('wire text', () => {
  it('[WT1] has one character a byte, and comes back as the string it was', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), (value) => {
        const wire = encodeWire(value);
        expect(wire).toBe(Buffer.from(value).toString('latin1'));
        expect(decodeWire(wire)).toBe(value);
      }),
      RUNS,
    );
    const long = '\u{1F600}é'.repeat(20_000);
    expect(decodeWire(encodeWire(long))).toBe(long);
    expect(decodeWire(encodeWire('\ufeffx'))).toBe('\ufeffx');
  });

  it('[WT1] of a value parses to the value', () => {
    fc.assert(
      fc.property(fc.json(), (text) => {
        expect(parseWire(stringifyWire(JSON.parse(text)))).toEqual(JSON.parse(text));
      }),
      RUNS,
    );
    expect(parseWire(stringifyWire('\ud800'))).toBe('\ud800');
    expect(() => parseWire('{')).toThrow(SyntaxError);
  });
});

describe('spans', () => {
  it('[WT2] members are what JSON.parse sees, of duplicate keys the last', () => {
    fc.assert(
      fc.property(objects, (text) => {
        const wire = encodeWire(text);
        const list = members(wire);
        const seen = Object.fromEntries(
          list.map((entry) => [entry.key, parseWire(wire.slice(entry.valueStart, entry.valueEnd))]),
        );
        const parsed = JSON.parse(text) as Json;
        expect(seen).toEqual(parsed);
        expect(Object.keys(seen)).toEqual(Object.keys(parsed));
        for (const key of KEYS) {
          const at = valueAt(wire, [key]);
          expect(at === undefined).toBe(!Object.hasOwn(parsed, key));
          if (at !== undefined) expect(parseWire(at)).toEqual(parsed[key]);
          expect(memberAt(wire, [key])).toEqual(member(list, key));
        }
      }),
      RUNS,
    );
  });

  it('[WT2] a path leads to what JSON.parse has there, or nowhere', () => {
    const step = (value: unknown, key: string): unknown =>
      typeof value === 'object' && value !== null && !Array.isArray(value) && Object.hasOwn(value, key)
        ? (value as Json)[key]
        : undefined;
    fc.assert(
      fc.property(objects, fc.array(fc.constantFrom('a', 'b', 'é'), { minLength: 1, maxLength: 3 }), (inner, path) => {
        const text = `{"a":${inner},"b":[${inner}],"é":{"a":${inner}}}`;
        const found = valueAt(encodeWire(text), path);
        expect(found === undefined ? undefined : parseWire(found)).toEqual(
          path.reduce(step, JSON.parse(text) as unknown),
        );
      }),
      RUNS,
    );
  });

  it('[WT2] items of an array are its items, and a value ends where it ends', () => {
    fc.assert(
      fc.property(fc.array(texts), space, space, (list, before, after) => {
        const wire = encodeWire(`${before}[${before}${list.join(`${after},${before}`)}${after}]${after}`);
        expect(items(wire).map(([start, end]) => wire.slice(start, end))).toEqual(list.map(encodeWire));
        expect(valueEnd(wire, before.length)).toBe(wire.length - after.length);
      }),
      RUNS,
    );
  });

  it('[WT2] there are none in other values', () => {
    for (const text of ['[]', '1', '"{"', 'null', '', '  ']) expect(members(text)).toEqual([]);
    for (const text of ['{}', '1', '"["', 'null', '']) expect(items(text)).toEqual([]);
    expect(valueAt('{"a":1}', ['a', 'b'])).toBeUndefined();
  });

  it('[WT2] are found in time proportional to the text, backslashes included', () => {
    const wire = `{"a":"${'\\\\'.repeat(2_000_000)}","b":"${'\\"'.repeat(2_000_000)}","c":1}`;
    expect(members(wire).map((entry) => entry.key)).toEqual(['a', 'b', 'c']);
  });
});

describe('edits', () => {
  it('[WT3] replace one value and leave every other byte', () => {
    fc.assert(
      fc.property(objects, texts, fc.nat(), (text, value, pick) => {
        const wire = encodeWire(text);
        const list = members(wire);
        const found = list[pick % Math.max(1, list.length)];
        if (!found) return;
        const edited = splice(wire, [setValue(found, encodeWire(value))]);
        expect(edited).toBe(wire.slice(0, found.valueStart) + encodeWire(value) + wire.slice(found.valueEnd));
        expect(members(edited).map((entry) => entry.key)).toEqual(list.map((entry) => entry.key));
      }),
      RUNS,
    );
  });

  it('[WT3] add a member that parsers see', () => {
    fc.assert(
      fc.property(objects, texts, (text, value) => {
        const wire = encodeWire(text);
        const edited = splice(wire, [addMember(wire, 0, 'añadido', encodeWire(value))]);
        expect(parseWire(edited)).toEqual({ ...(JSON.parse(text) as Json), añadido: JSON.parse(value) as unknown });
        expect(edited.length).toBeGreaterThan(wire.length);
      }),
      RUNS,
    );
    expect(splice(' { } ', [addMember(' { } ', 0, 'a', '1')])).toBe(' {"a":1 } ');
  });

  it('[WT3] remove members by name, all of them, and combine with edits of those that stay', () => {
    const twice = '{"a":1,"x":2,"a":3}';
    expect(splice(twice, removeMembers(twice, members(twice), ['a']))).toBe('{"x":2}');
    fc.assert(
      fc.property(objects, fc.subarray(KEYS), (text, gone) => {
        const wire = encodeWire(text);
        const list = members(wire);
        const expected = JSON.parse(text) as Json;
        for (const key of gone) delete expected[key];
        expect(parseWire(splice(wire, removeMembers(wire, list, gone)))).toEqual(expected);
        const kept = list.filter((entry) => !gone.includes(entry.key));
        const edits = [...removeMembers(wire, list, gone), ...kept.map((entry) => setValue(entry, '7'))];
        if (kept.length > 0) edits.push(addMember(wire, 0, 'new', '8'));
        const parsed = parseWire(splice(wire, edits)) as Json;
        expect(Object.entries(parsed).every(([key, value]) => value === (key === 'new' ? 8 : 7))).toBe(true);
        expect(Object.keys(parsed)).toHaveLength(Object.keys(expected).length + (kept.length > 0 ? 1 : 0));
      }),
      RUNS,
    );
  });
});
