/**
 * Who may connect: decided before the upgrade, from the request alone. Loopback needs no token; a browser's Origin and
 * Host must be listed, else a web page could reach a sidecar on the reader's machine. A token is taken from the
 * `Authorization` header or the subprotocol, never from the URL: URLs end up in logs and histories.
 */
import { timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Identity } from '../connection.ts';
import { type Token, tokenDigest } from './token-file.ts';

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

type AccessRequest = Pick<IncomingMessage, 'headers'>;

const TOKEN_PROTOCOL = 'acp.token.';

/** Whether a page's script, or a name that an attacker bound to this address, is behind the request. */
function refuseBrowser(rule: AccessRule, request: AccessRequest): Refusal | undefined {
  const { origin, host } = request.headers;
  if (origin !== undefined && !rule.allowOrigins.includes(origin.toLowerCase())) {
    return { status: 403, reason: 'Origin Not Allowed' };
  }
  if (rule.loopbackHostsOnly && !isLoopbackHost(host ?? '')) return { status: 403, reason: 'Host Not Allowed' };
  return undefined;
}

export function admit(rule: AccessRule, request: AccessRequest): Identity | Refusal {
  const refused = refuseBrowser(rule, request);
  if (refused) return refused;
  if (!rule.tokens) return { role: 'controller' };
  const given = bearerOf(request);
  const found = given === undefined ? undefined : findToken(rule.tokens, given);
  if (!found) return { status: 401, reason: 'Unauthorized' };
  const { role, name, tokenId, sessions } = found;
  return { role, name, tokenId, sessions };
}

/** Every token is compared, in constant time each, so that the time tells nothing about which one was nearly right. */
export function findToken(tokens: readonly Token[], given: string): Token | undefined {
  const digest = tokenDigest(given);
  let found: Token | undefined;
  for (const token of tokens) if (timingSafeEqual(token.digest, digest)) found = token;
  return found;
}

function bearerOf(request: AccessRequest): string | undefined {
  const header = /^Bearer +(\S+) *$/i.exec(request.headers.authorization ?? '')?.[1];
  if (header !== undefined) return header;
  const protocols = (request.headers['sec-websocket-protocol'] ?? '').split(',').map((entry) => entry.trim());
  const encoded = protocols.find((entry) => entry.startsWith(TOKEN_PROTOCOL))?.slice(TOKEN_PROTOCOL.length);
  return encoded === undefined ? undefined : Buffer.from(encoded, 'base64url').toString('utf8');
}

function isLoopbackHost(host: string): boolean {
  return /^(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?$/i.test(host);
}
