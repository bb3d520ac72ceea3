/** Upgrade requests as a stranger sends them, header by header. */
import { type IncomingMessage, request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { Duplex } from 'node:stream';
import { within } from './wait-for.ts';

export interface UpgradeOptions {
  readonly headers?: Readonly<Record<string, string>>;
  readonly path?: string;
  /** PEM of the certificate that is expected. */
  readonly ca?: string;
}

export interface UpgradeAnswer {
  /** 101 when it was accepted. */
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
}

const UPGRADE = {
  connection: 'Upgrade',
  upgrade: 'websocket',
  'sec-websocket-version': '13',
  'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==',
};

/** The status of a plain GET. */
export async function getStatus(url: string, path: string, host?: string): Promise<number> {
  const { hostname, port } = new URL(url);
  const headers = host === undefined ? {} : { host };
  return new Promise((resolve, reject) => {
    const made = httpRequest({ host: hostname, port, path, headers, agent: false }, (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    });
    made.on('error', reject);
    made.end();
  });
}

/** Asks for a WebSocket at the host and port of `url`, and hangs up. */
export function tryUpgrade(
  url: string,
  { headers = {}, path = '/acp', ca }: UpgradeOptions = {},
): Promise<UpgradeAnswer> {
  const { hostname, port, protocol } = new URL(url);
  const options = {
    host: hostname.replace(/^\[|\]$/g, ''),
    port,
    path,
    headers: { ...UPGRADE, ...headers },
    agent: false as const,
  };
  const made = protocol === 'wss:' ? httpsRequest({ ...options, ca }) : httpRequest(options);
  const answer = new Promise<UpgradeAnswer>((resolve, reject) => {
    const answered = (response: IncomingMessage, socket?: Duplex): void => {
      resolve({ status: response.statusCode ?? 0, headers: response.headers });
      socket?.destroy();
      made.destroy();
    };
    made.on('upgrade', answered);
    made.on('response', (response) => answered(response));
    made.on('error', reject);
    made.end();
  });
  return within(`an answer to an upgrade of ${path}`, answer);
}
