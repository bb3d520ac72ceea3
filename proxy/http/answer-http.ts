/**
 * What a plain HTTP request gets:
 *
 *   /healthz  200 while the process answers
 *   /readyz   200 when new work can be taken, else 503; the body says what is missing
 *   /metrics  for Prometheus; needs what a client needs (token, Host, Origin)
 *   /acp      426: it is for WebSocket
 *
 * The probes need no token, because whatever asks them has none; they tell nothing about sessions.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { House } from '../house.ts';
import { readiness } from './readiness.ts';

/** Why a request may not have `/metrics`; undefined when it may. */
export type Refused = { readonly status: number; readonly reason: string } | undefined;

interface Answer {
  readonly status: number;
  readonly type: string;
  readonly body: string;
}

const plain = (status: number, body: string): Answer => ({ status, type: 'text/plain; charset=utf-8', body });

export async function answerHttp(
  house: House,
  request: IncomingMessage,
  response: ServerResponse,
  refused: () => Refused,
): Promise<void> {
  const { status, type, body } = await answerOf(house, request, refused);
  response.writeHead(status, {
    'content-type': type,
    'content-length': Buffer.byteLength(body),
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
  });
  response.end(request.method === 'HEAD' ? undefined : body);
}

async function answerOf(house: House, request: IncomingMessage, refused: () => Refused): Promise<Answer> {
  const path = (request.url ?? '/').split('?', 1)[0];
  if (path === '/acp') return plain(426, 'connect with WebSocket\n');
  if (path !== '/healthz' && path !== '/readyz' && path !== '/metrics') return plain(404, 'not found\n');
  if (request.method !== 'GET' && request.method !== 'HEAD') return plain(405, 'GET only\n');
  if (path === '/healthz') return plain(200, 'ok\n');
  if (path === '/readyz') {
    const now = readiness(house);
    return { status: now.ready ? 200 : 503, type: 'application/json', body: `${JSON.stringify(now)}\n` };
  }
  const refusal = refused();
  if (refusal) return plain(refusal.status, `${refusal.reason}\n`);
  // Loaded by the first scrape: nobody else needs it.
  const { EXPOSITION_TYPE, exposition } = await import('./exposition.ts');
  return { status: 200, type: EXPOSITION_TYPE, body: exposition(house) };
}
