/**
 * The fast path for streamed text: prove one line, compile it, match the next ones.
 *
 * A line that has been parsed is cut at its text; what stands before and behind becomes one sticky RegExp around "the
 * body of a JSON string". A line that matches differs from the proven one in nothing but the text, so key order,
 * duplicate keys and nested look-alikes cannot deceive. Everything else is parsed.
 */
import { isObject } from '../json-rpc.ts';

export interface TextTemplate<Owner> {
  readonly pattern: RegExp;
  readonly prefixBytes: number;
  readonly suffixBytes: number;
  readonly owner: Owner;
}

/** Longer lines are parsed: on megabytes of escapes the RegExp engine runs out of stack. */
export const MAX_TEMPLATE_LINE_BYTES = 256 * 1024;

const BODY = '[^"\\\\\\x00-\\x1f]*(?:\\\\(?:["\\\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\\\\x00-\\x1f]*)*';
const CARRIAGE_RETURN = 13;
const SENTINEL = 'b1f0c4a2-sentinel';

function escapeRegExp(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&');
}

/**
 * @param line a whole line without its end, already parsed as a text chunk
 * @param bodyStart start of the text's JSON string body in the line; `bodyEnd` its end
 * @returns undefined when the span is not what a parser sees as the chunk's text
 */
export function compileTemplate<Owner>(
  line: string,
  bodyStart: number,
  bodyEnd: number,
  owner: Owner,
): TextTemplate<Owner> | undefined {
  if (line.length > MAX_TEMPLATE_LINE_BYTES) return undefined;
  const prefix = line.slice(0, bodyStart);
  const suffix = line.slice(bodyEnd);
  const probe: unknown = JSON.parse(prefix + SENTINEL + suffix);
  const params = isObject(probe) ? probe['params'] : undefined;
  const update = isObject(params) ? params['update'] : undefined;
  const content = isObject(update) ? update['content'] : undefined;
  if (!isObject(content) || content['text'] !== SENTINEL) return undefined;
  const pattern = new RegExp(`${escapeRegExp(prefix)}${BODY}${escapeRegExp(suffix)}\\r?\\n`, 'y');
  return { pattern, prefixBytes: prefix.length, suffixBytes: suffix.length, owner };
}

/** Lines that matched, one behind the other. */
export interface MatchedText {
  /** Their texts, joined. */
  readonly body: string;
  /** The offset behind the last line's end. */
  readonly next: number;
}

/**
 * Takes the lines from `at` on for as long as they match and have a text, until about `maxBytes` of it. Undefined when
 * the first one does not match. One loop for many lines: a stream begins cold, and then every call between functions
 * costs more than the match.
 */
export function matchText(
  template: TextTemplate<unknown>,
  text: string,
  at: number,
  maxBytes: number,
): MatchedText | undefined {
  const { pattern, prefixBytes, suffixBytes } = template;
  let body = '';
  let next = at;
  do {
    pattern.lastIndex = next;
    if (!pattern.test(text)) break;
    const lineEnd = pattern.lastIndex;
    const bodyEnd = lineEnd - suffixBytes - (text.charCodeAt(lineEnd - 2) === CARRIAGE_RETURN ? 2 : 1);
    if (bodyEnd === next + prefixBytes) break;
    body += text.slice(next + prefixBytes, bodyEnd);
    next = lineEnd;
  } while (body.length < maxBytes && next < text.length);
  return next === at ? undefined : { body, next };
}
