/** How option texts become values. A text that is none is a `BadValue` that says what would be one. */

export class BadValue extends Error {}

const DURATION_UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const SIZE_UNITS: Readonly<Record<string, number>> = { B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3 };

export interface Bounds {
  readonly min?: string;
  readonly max?: string;
}

/** `500ms 30s 5m 12h 30d` in milliseconds. */
export function parseDuration(text: string, bounds: Bounds = {}): number {
  const found = /^(\d{1,12})(ms|s|m|h|d)$/.exec(text);
  if (!found) throw new BadValue('is not a duration; write a number and a unit, like 500ms, 30s, 5m, 12h or 30d');
  const ms = Number(found[1]) * (DURATION_UNITS[found[2] as string] as number);
  if (bounds.min && ms < parseDuration(bounds.min)) throw new BadValue(`is too short; the least is ${bounds.min}`);
  if (bounds.max && ms > parseDuration(bounds.max)) throw new BadValue(`is too long; the most is ${bounds.max}`);
  return ms;
}

/** `64KiB 16MiB`, or a plain number of bytes. */
export function parseSize(text: string, bounds: Bounds = {}): number {
  const found = /^(\d{1,12})(B|KiB|MiB|GiB)?$/.exec(text);
  if (!found) throw new BadValue('is not a size; write a number and a unit, like 64KiB or 16MiB');
  const bytes = Number(found[1]) * (SIZE_UNITS[found[2] ?? 'B'] as number);
  if (bounds.min && bytes < parseSize(bounds.min)) throw new BadValue(`is too small; the least is ${bounds.min}`);
  if (bounds.max && bytes > parseSize(bounds.max)) throw new BadValue(`is too large; the most is ${bounds.max}`);
  return bytes;
}

export function parseFlag(text: string): boolean {
  if (/^(1|true|yes|on)$/i.test(text)) return true;
  if (/^(0|false|no|off)$/i.test(text)) return false;
  throw new BadValue('is neither true nor false');
}

export function parseChoice<T extends string>(text: string, choices: readonly T[]): T {
  const found = choices.find((choice) => choice === text);
  if (found === undefined) throw new BadValue(`is not one of ${choices.join(', ')}`);
  return found;
}

/** Where to listen. `port` 0 is any free one. */
export type ListenAddress =
  /** `secure`: written as `wss://`, which must not be served without TLS. */
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number; readonly secure?: true }
  | { readonly kind: 'unix'; readonly path: string };

const ADDRESS_FORMS =
  'write HOST:PORT (port 0: any free one), [IPv6]:PORT, unix:PATH, ws://HOST:PORT or wss://HOST:PORT';

export function parseAddress(text: string): ListenAddress {
  if (text.startsWith('unix:')) {
    const path = text.slice(5);
    if (path === '') throw new BadValue('names no path; write unix:PATH');
    // sun_path is 108 bytes on Linux and 104 elsewhere, with its closing NUL.
    if (Buffer.byteLength(path) > 103)
      throw new BadValue('has a path over 103 bytes; a Unix socket needs a shorter one');
    return { kind: 'unix', path };
  }
  const bare = /^wss?:\/\/([^/?#]*)(\/acp)?\/?$/.exec(text)?.[1] ?? text;
  const found = /^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})$/.exec(bare);
  const port = Number(found?.[2]);
  if (!found || port > 65_535) throw new BadValue(`is not an address; ${ADDRESS_FORMS}`);
  const host = (found[1] as string).replace(/^\[|\]$/g, '');
  return { kind: 'tcp', host, port, ...(text.startsWith('wss://') ? { secure: true as const } : {}) };
}

/** `30d,500,10GiB`: an age, a number, a size; each at most once, in any order. */
export function parseRetain(texts: readonly string[]): { ageMs?: number; count?: number; bytes?: number } {
  const limits: { ageMs?: number; count?: number; bytes?: number } = {};
  for (const text of texts) {
    const kind = /^\d+$/.test(text) ? 'count' : text.endsWith('B') ? 'bytes' : 'ageMs';
    if (limits[kind] !== undefined) throw new BadValue('says the same limit twice');
    if (kind === 'count') limits.count = parseCount(text, 1);
    else if (kind === 'bytes') limits.bytes = parseSize(text);
    else limits.ageMs = parseDuration(text, { min: '1s' });
  }
  return limits;
}

/** A whole number from `min` on. */
export function parseCount(text: string, min: number): number {
  const count = /^\d{1,7}$/.test(text) ? Number(text) : Number.NaN;
  if (!(count >= min)) throw new BadValue(`is not a whole number from ${min} on`);
  return count;
}

/** A regular expression as it is written between slashes; what it matches is taken out, everywhere. */
export function parsePattern(text: string): RegExp {
  let pattern: RegExp;
  try {
    pattern = new RegExp(text, 'gu');
  } catch (error) {
    throw new BadValue(`is not a regular expression: ${(error as Error).message}`);
  }
  if (pattern.test('')) throw new BadValue('matches the empty text; write what the secret looks like');
  pattern.lastIndex = 0;
  return pattern;
}

/** Only this machine can reach it. A host name other than `localhost` is not trusted to be. */
export function isLoopback(address: ListenAddress): boolean {
  if (address.kind === 'unix') return true;
  return address.host === 'localhost' || address.host === '::1' || /^127(\.\d{1,3}){3}$/.test(address.host);
}

/** A browser's `Origin`: scheme, host and port, no path. */
export function parseOrigin(text: string): string {
  if (text === 'null') return text;
  let url: URL | undefined;
  try {
    url = new URL(text);
  } catch {
    url = undefined;
  }
  const origin = url && (url.origin === 'null' ? `${url.protocol}//${url.host}` : url.origin);
  if (origin === undefined || text.replace(/\/$/, '').toLowerCase() !== origin) {
    throw new BadValue('is not an origin; write scheme, host and port only, like https://app.example.com');
  }
  return origin;
}

export function parseJsonObject(text: string): Readonly<Record<string, unknown>> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new BadValue('is not JSON');
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new BadValue('is not a JSON object');
  return value as Record<string, unknown>;
}

/** Items of a list option: each occurrence may hold several, separated by commas. */
export function splitList(texts: readonly string[]): string[] {
  return texts
    .flatMap((text) => text.split(','))
    .map((item) => item.trim())
    .filter((item) => item !== '');
}
