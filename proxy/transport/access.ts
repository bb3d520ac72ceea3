/**
 * Who may connect: decided before the upgrade, from the request alone. Loopback needs no token; a browser's Origin and
 * Host must be listed, else a web page could reach a sidecar on the reader's machine.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Identity } from '../connection.ts';

export interface Token {
  readonly digest: Buffer;
  readonly role: 'controller' | 'observer';
  readonly name?: string | undefined;
}

export interface AccessRule {
  /** Undefined: no token is asked for. */
  readonly tokens: readonly Token[] | undefined;
  readonly allowOrigins: readonly string[];
  /** The Host must be a loopback name or address, unless tokens protect the address. */
  readonly loopbackHostsOnly: boolean;
}

export interface Refusal {
  readonly status: 401 | 403 | 404 | 503;
  readonly reason: string;
}

const TOKEN_PROTOCOL = 'acp.token.';

export function tokenDigest(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}

export function admit(rule: AccessRule, request: IncomingMessage): Identity | Refusal {
  const { origin, host } = request.headers;
  if (origin !== undefined && !rule.allowOrigins.includes(origin.toLowerCase())) {
    return { status: 403, reason: 'Origin Not Allowed' };
  }
  if (rule.loopbackHostsOnly && !isLoopbackHost(host ?? '')) return { status: 403, reason: 'Host Not Allowed' };
  if (!rule.tokens) return { role: 'controller' };
  const given = bearerOf(request);
  const digest = given === undefined ? undefined : tokenDigest(given);
  let found: Token | undefined;
  // Every token is compared, so that the time tells nothing about which one was nearly right.
  for (const token of rule.tokens) if (digest && timingSafeEqual(token.digest, digest)) found = token;
  return found ? { role: found.role, name: found.name } : { status: 401, reason: 'Unauthorized' };
}

function bearerOf(request: IncomingMessage): string | undefined {
  const header = /^Bearer +(\S+)$/i.exec(request.headers.authorization ?? '')?.[1];
  if (header !== undefined) return header;
  const protocols = (request.headers['sec-websocket-protocol'] ?? '').split(',').map((entry) => entry.trim());
  const encoded = protocols.find((entry) => entry.startsWith(TOKEN_PROTOCOL))?.slice(TOKEN_PROTOCOL.length);
  return encoded === undefined ? undefined : Buffer.from(encoded, 'base64url').toString('utf8');
}

function isLoopbackHost(host: string): boolean {
  return /^(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?$/i.test(host);
}

/** `TOKEN [controller|observer] [name]` per line, `#` comments. @throws Error that names the line */
export function parseTokenFile(text: string): Token[] {
  const tokens: Token[] = [];
  for (const [at, line] of text.split(/\r?\n/).entries()) {
    const words = line
      .replace(/(^|\s)#.*$/, '')
      .trim()
      .split(/\s+/);
    const [token, role = 'controller', name] = words;
    if (token === undefined || token === '') continue;
    if (role !== 'controller' && role !== 'observer') {
      throw new Error(`line ${at + 1} of the token file: the role must be controller or observer`);
    }
    tokens.push({ digest: tokenDigest(token), role, name });
  }
  return tokens;
}
