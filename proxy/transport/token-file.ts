/**
 * The token file: who may connect, and as what. It is read at the start and again at SIGHUP. Only digests of the tokens
 * are kept, and no error or warning repeats any part of a line but its number.
 */
import { createHash } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';

export interface Token {
  readonly digest: Buffer;
  /** Tells tokens apart in this process; says nothing about the token. */
  readonly tokenId: string;
  readonly role: 'controller' | 'observer';
  readonly name?: string | undefined;
  /** The only sessions it opens; undefined: all. */
  readonly sessions?: ReadonlySet<string> | undefined;
}

export interface TokenFile {
  readonly tokens: readonly Token[];
  readonly warnings: readonly string[];
}

/** Shorter ones can be guessed over the network in the life of a server. */
const SHORT_TOKEN = 16;

export function tokenDigest(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}

/**
 * `TOKEN [controller|observer] [name] [session=ID,...]` per line, `#` comments. The role may only be left out together
 * with the name: a misspelt role must not become the name of a controller.
 * @throws Error that names the line
 */
export function parseTokenFile(text: string): Token[] {
  const tokens = new Map<string, Token>();
  for (const [at, line] of text.split(/\r?\n/).entries()) {
    const words = line
      .replace(/(^|\s)#.*$/, '')
      .trim()
      .split(/\s+/);
    const [token, ...rest] = words;
    if (token === undefined || token === '') continue;
    const fields = fieldsOf(rest, at + 1);
    const digest = tokenDigest(token);
    const key = digest.toString('hex');
    if (tokens.has(key)) throw new Error(`line ${at + 1} of the token file: this token is there already`);
    // Another digest of the digest: what is compared never leaves this module's owner.
    const tokenId = createHash('sha256').update('id').update(digest).digest('base64url').slice(0, 12);
    tokens.set(key, { digest, tokenId, ...fields });
  }
  return [...tokens.values()];
}

function fieldsOf(words: readonly string[], line: number): Omit<Token, 'digest' | 'tokenId'> {
  const wrong = (what: string): Error => new Error(`line ${line} of the token file: ${what}`);
  const limits = words.filter((word) => word.startsWith('session='));
  const [role = 'controller', name, ...more] = words.filter((word) => !word.startsWith('session='));
  if (role !== 'controller' && role !== 'observer') throw wrong('the role must be controller or observer');
  if (more.length > 0) throw wrong('there is more than a token, a role, a name and session=ID,...');
  if (limits.length === 0) return { role, name };
  const ids = limits.flatMap((limit) => limit.slice('session='.length).split(',')).filter((id) => id !== '');
  if (ids.length === 0) throw wrong('session= names no session');
  return { role, name, sessions: new Set(ids) };
}

/** Reads a token file. @throws Error that says what is wrong, without any of its content */
export function loadTokenFile(path: string): TokenFile {
  const warnings: string[] = [];
  const text = readFileSync(path, 'utf8');
  const { mode, uid } = statSync(path);
  if ((mode & 0o077) !== 0) {
    const shown = (mode & 0o777).toString(8).padStart(4, '0');
    warnings.push(`others can read the token file ${path} (mode ${shown}); chmod 0600 it`);
  }
  const self = process.getuid?.();
  if (self !== undefined && uid !== self && uid !== 0) {
    warnings.push(`the token file ${path} belongs to another user (uid ${uid})`);
  }
  const tokens = parseTokenFile(text);
  if (tokens.length === 0) throw new Error(`the token file ${path} has no tokens`);
  const short = text.split(/\r?\n/).findIndex((line) => {
    const word =
      line
        .replace(/(^|\s)#.*$/, '')
        .trim()
        .split(/\s+/)[0] ?? '';
    return word !== '' && word.length < SHORT_TOKEN;
  });
  if (short >= 0) warnings.push(`line ${short + 1} of the token file: a token under ${SHORT_TOKEN} characters`);
  return { tokens, warnings };
}
