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

/**
 * Tries the template on the line that starts at `at`. Returns the offset behind the line's end, or -1. The text stands
 * from `at + prefixBytes` to `bodyEndOf(...)`.
 */
export function matchTemplate(template: TextTemplate<unknown>, text: string, at: number): number {
  template.pattern.lastIndex = at;
  return template.pattern.test(text) ? template.pattern.lastIndex : -1;
}

/** The end of the text in a line that matched and ended at `next`. */
export function bodyEndOf(template: TextTemplate<unknown>, text: string, next: number): number {
  return next - template.suffixBytes - (text.charCodeAt(next - 2) === 13 ? 2 : 1);
}
