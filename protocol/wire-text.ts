/**
 * Wire text: the bytes of a JSON message held as a string with one character per byte (latin1 of the UTF-8).
 * Everything that is only passed on stays in this form, so numbers, escapes, key order and unknown fields survive
 * exactly; only the few members that we act on are looked at. JSON's structure is ASCII, so spans found here are
 * byte spans.
 *
 * The scanners below expect text that JSON.parse has accepted (see `parseWire`); they do not validate.
 */

declare class TextDecoder {
  constructor(label: 'utf-8', options: { ignoreBOM: boolean });
  decode(bytes: Uint8Array): string;
}
declare class TextEncoder {
  encode(text: string): Uint8Array;
}

// Pieces of text are decoded too, and U+FEFF at the start of one is a character like any other.
const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
const encoder = new TextEncoder();
const NON_ASCII = /[\x80-\xff]/;

let decodeNonAscii = (wire: string): string => {
  const bytes = new Uint8Array(wire.length);
  for (let i = 0; i < wire.length; i++) bytes[i] = wire.charCodeAt(i);
  return decoder.decode(bytes);
};

/** For hosts with a faster way from bytes to text. It must do the same. */
export function decodeWireWith(decode: (wire: string) => string): void {
  decodeNonAscii = decode;
}

/** The ordinary (UTF-16) string of a piece of wire text. */
export function decodeWire(wire: string): string {
  return NON_ASCII.test(wire) ? decodeNonAscii(wire) : wire;
}

/** Wire text of an ordinary string. */
export function encodeWire(text: string): string {
  // oxlint-disable-next-line no-control-regex -- the ASCII range is what is asked for
  if (/^[\x00-\x7f]*$/.test(text)) return text;
  const bytes = encoder.encode(text);
  let wire = '';
  for (let i = 0; i < bytes.length; i += 8192) wire += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return wire;
}

/** The JSON value of wire text. @throws SyntaxError when it is not JSON. */
export function parseWire(wire: string): unknown {
  return JSON.parse(decodeWire(wire));
}

/** Wire text of a JSON value that we make ourselves. */
export function stringifyWire(value: unknown): string {
  return encodeWire(JSON.stringify(value));
}

/** Where one member of an object stands in the text. Offsets are into the scanned text; ends are exclusive. */
export interface Member {
  readonly key: string;
  readonly keyStart: number;
  readonly valueStart: number;
  readonly valueEnd: number;
}

const QUOTE = 34;
const BACKSLASH = 92;

function isSpace(code: number): boolean {
  return code === 32 || code === 10 || code === 13 || code === 9;
}

function skipSpace(text: string, at: number): number {
  let i = at;
  while (isSpace(text.charCodeAt(i))) i++;
  return i;
}

function stringEnd(text: string, at: number): number {
  let i = at + 1;
  for (;;) {
    const quote = text.indexOf('"', i);
    if (quote < 0) return text.length;
    let back = quote - 1;
    while (text.charCodeAt(back) === BACKSLASH) back--;
    if ((quote - back) % 2 === 1) return quote + 1;
    i = quote + 1;
  }
}

/** The end (exclusive) of the JSON value that starts at `at`. */
export function valueEnd(text: string, at: number): number {
  const first = text.charCodeAt(at);
  if (first === QUOTE) return stringEnd(text, at);
  if (first === 123 || first === 91) {
    let depth = 0;
    let i = at;
    for (; i < text.length; i++) {
      const code = text.charCodeAt(i);
      if (code === QUOTE) i = stringEnd(text, i) - 1;
      else if (code === 123 || code === 91) depth++;
      else if ((code === 125 || code === 93) && --depth === 0) return i + 1;
    }
    return i;
  }
  let i = at;
  for (; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === 44 || code === 125 || code === 93 || isSpace(code)) break;
  }
  return i;
}

/** The members of the object that starts at `at` (white space before it is skipped); none when it is not an object. */
export function members(text: string, at = 0): Member[] {
  const found: Member[] = [];
  let i = skipSpace(text, at);
  if (text.charCodeAt(i) !== 123) return found;
  i = skipSpace(text, i + 1);
  while (i < text.length && text.charCodeAt(i) === QUOTE) {
    const keyStart = i;
    const keyEnd = stringEnd(text, i);
    const raw = text.slice(keyStart + 1, keyEnd - 1);
    const key = raw.includes('\\') || NON_ASCII.test(raw) ? (parseWire(`"${raw}"`) as string) : raw;
    const valueStart = skipSpace(text, skipSpace(text, keyEnd) + 1);
    const end = valueEnd(text, valueStart);
    found.push({ key, keyStart, valueStart, valueEnd: end });
    i = skipSpace(text, end);
    if (text.charCodeAt(i) !== 44) break;
    i = skipSpace(text, i + 1);
  }
  return found;
}

/** The spans of the items of the array that starts at `at`; none when it is not an array. */
export function items(text: string, at = 0): [start: number, end: number][] {
  const found: [number, number][] = [];
  let i = skipSpace(text, at);
  if (text.charCodeAt(i) !== 91) return found;
  i = skipSpace(text, i + 1);
  while (i < text.length && text.charCodeAt(i) !== 93) {
    const end = valueEnd(text, i);
    found.push([i, end]);
    i = skipSpace(text, end);
    if (text.charCodeAt(i) === 44) i = skipSpace(text, i + 1);
  }
  return found;
}

/** The member that JSON.parse would see under `key`: of duplicates the last one. */
export function member(list: readonly Member[], key: string): Member | undefined {
  for (let i = list.length - 1; i >= 0; i--) if (list[i]?.key === key) return list[i];
  return undefined;
}

/** The member at a path of object keys, or undefined. */
export function memberAt(text: string, path: readonly string[], at = 0): Member | undefined {
  let start = at;
  let found: Member | undefined;
  for (const key of path) {
    found = member(members(text, start), key);
    if (!found) return undefined;
    start = found.valueStart;
  }
  return found;
}

/** The text of the value at a path, or undefined. */
export function valueAt(text: string, path: readonly string[], at = 0): string | undefined {
  const found = memberAt(text, path, at);
  return found && text.slice(found.valueStart, found.valueEnd);
}

/**
 * The same text on its own, for what is kept. A part of a larger text keeps all of that in memory: of the 64 KiB that a
 * line was read with, say.
 */
export function ownText(text: string): string {
  return ` ${text}`.slice(1);
}

/** One replacement: the characters from `start` to `end` (exclusive) become `text`. */
export interface Edit {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/** Applies edits that do not overlap, in any order. */
export function splice(text: string, edits: readonly Edit[]): string {
  const sorted = edits.toSorted((a, b) => a.start - b.start || a.end - b.end);
  let out = '';
  let at = 0;
  for (const edit of sorted) {
    out += text.slice(at, edit.start) + edit.text;
    at = edit.end;
  }
  return out + text.slice(at);
}

/** The edit that replaces a member's value. */
export function setValue(found: Member, value: string): Edit {
  return { start: found.valueStart, end: found.valueEnd, text: value };
}

/**
 * The edit that adds a first member to the object at `objectStart`. A member of that name that is already there wins,
 * for parsers take the last one: remove it in an earlier splice.
 */
export function addMember(text: string, objectStart: number, key: string, value: string): Edit {
  const at = skipSpace(text, objectStart) + 1;
  const comma = text.charCodeAt(skipSpace(text, at)) === 125 ? '' : ',';
  return { start: at, end: at, text: `${stringifyWire(key)}:${value}${comma}` };
}

/**
 * The edits that take every member with one of the keys out of an object, with the commas that held it. They touch
 * nothing of the members that stay, so they combine with `setValue` of those; with `addMember` only when one stays.
 */
export function removeMembers(_text: string, list: readonly Member[], keys: readonly string[]): Edit[] {
  const edits: Edit[] = [];
  for (let i = 0; i < list.length; i++) {
    const first = list[i] as Member;
    if (!keys.includes(first.key)) continue;
    const before = list[i - 1];
    while (i + 1 < list.length && keys.includes((list[i + 1] as Member).key)) i++;
    const after = list[i + 1];
    // A member goes with the comma behind it, the last one with the comma before it.
    const start = after || !before ? first.keyStart : before.valueEnd;
    edits.push({ start, end: after ? after.keyStart : (list[i] as Member).valueEnd, text: '' });
  }
  return edits;
}
