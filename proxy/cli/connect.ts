/** `acp-sidecar connect`: stdio on one side, a sidecar somewhere else on the other. */
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { openTarget } from '../client/node.ts';
import { timesOf } from '../client/resumable-stream.ts';
import { bridgeStdio } from '../client/stdio-bridge.ts';
import { BadValue, parseDuration } from '../option-values.ts';
import { CommandError } from './exit-code.ts';

export interface ConnectFlags {
  readonly tokenFile?: string;
  readonly name?: string;
  readonly heartbeat?: string;
  readonly giveUp?: string;
}

export function connectStdio(target: string, flags: ConnectFlags): Promise<number> {
  const url = targetUrl(target);
  const token = tokenOf(flags);
  const heartbeatMs = durationOf('--heartbeat', flags.heartbeat ?? '15s', '10ms');
  const giveUpMs = durationOf('--give-up', flags.giveUp ?? '30s', '0ms');
  const times = timesOf({ heartbeatMs, giveUpMs });
  return bridgeStdio({ openTransport: openTarget({ url, token }), where: url, name: flags.name, times });
}

/** `ws://`, `wss://`, `unix:PATH` or the path of a socket. */
function targetUrl(target: string): string {
  if (/^wss?:\/\//.test(target)) {
    let url: URL;
    try {
      url = new URL(target);
    } catch {
      throw new CommandError('usage', `${JSON.stringify(target)} is not a URL`);
    }
    if (url.pathname === '/' || url.pathname === '') url.pathname = '/acp';
    return url.href;
  }
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(target)) {
    throw new CommandError('usage', `${JSON.stringify(target)} is neither ws:// nor wss:// nor a Unix socket`);
  }
  return `unix:${resolve(target.replace(/^unix:/, ''))}`;
}

/** The first token of the file, which may be the server's; else `ACP_SIDECAR_TOKEN`. Never an argument: `ps` shows those. */
function tokenOf(flags: ConnectFlags): string | undefined {
  if (flags.tokenFile === undefined) return process.env['ACP_SIDECAR_TOKEN'] || undefined;
  let text: string;
  try {
    text = readFileSync(flags.tokenFile, 'utf8');
  } catch (error) {
    throw new CommandError('usage', `--token-file: ${(error as Error).message}`);
  }
  for (const line of text.split(/\r?\n/)) {
    const token = line
      .replace(/(^|\s)#.*$/, '')
      .trim()
      .split(/\s+/)[0];
    if (token !== undefined && token !== '') return token;
  }
  throw new CommandError('usage', `--token-file: ${flags.tokenFile} holds no token`);
}

function durationOf(flag: string, text: string, min: string): number {
  try {
    return parseDuration(text, { min, max: '24d' });
  } catch (error) {
    if (!(error instanceof BadValue)) throw error;
    throw new CommandError('usage', `${flag}: ${JSON.stringify(text)} ${error.message}`);
  }
}
