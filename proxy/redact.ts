/** Taking out of texts what `--redact` names. */

export const REDACTED = '[redacted]';

/** `"key":` or a value: a JSON string, and the colon behind it when it is a key. */
const JSON_STRING = /"(?:[^"\\]|\\.)*"(\s*:)?/g;

/** @param patterns global */
export function redactText(text: string, patterns: readonly RegExp[]): string {
  let clean = text;
  for (const pattern of patterns) clean = clean.replace(pattern, REDACTED);
  return clean;
}

/**
 * Redacts the string values of a JSON text and leaves everything else as it is, so that numbers, order and spaces
 * survive. A pattern sees a value as it was meant, not its escapes.
 */
export function redactJson(json: string, patterns: readonly RegExp[]): string {
  if (patterns.length === 0) return json;
  return json.replace(JSON_STRING, (literal: string, colon: string | undefined) => {
    if (colon !== undefined) return literal;
    const value = JSON.parse(literal) as string;
    const clean = redactText(value, patterns);
    return clean === value ? literal : JSON.stringify(clean);
  });
}
