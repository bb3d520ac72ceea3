/** Reading what `--trace` wrote; FILE.1 comes before FILE when the trace went on from one to the other. */
import { existsSync, readFileSync } from 'node:fs';
import { isObject } from '../../protocol/json-rpc.ts';
import { parseWire, valueAt } from '../../protocol/wire-text.ts';
import { CommandError } from '../cli/exit-code.ts';
import { type Peer, TRACE_VERSION, type TracedEvent } from './trace-record.ts';

/** A line of a trace. `wire` is the message as the peer wrote it, wire text; undefined for what was no message. */
export interface TraceLine {
  readonly time: number;
  readonly peer: Peer;
  /** Which process of the agent, or which connection. */
  readonly id: number;
  readonly event?: TracedEvent['event'];
  readonly to?: 'agent' | 'client' | 'sidecar';
  readonly wire?: string;
  readonly raw?: string;
}

/** @throws CommandError when it cannot be read or is no trace */
export function readTrace(path: string): TraceLine[] {
  const { part, lines } = readPart(path);
  const before = `${path}.1`;
  if (part === 1 || !existsSync(before)) return lines;
  const earlier = readPart(before);
  // Another trace may have been begun since.
  return earlier.part === part - 1 ? [...earlier.lines, ...lines] : lines;
}

function readPart(path: string): { part: number; lines: TraceLine[] } {
  let text: string;
  try {
    text = readFileSync(path, 'latin1');
  } catch (error) {
    throw new CommandError('failure', `${path} cannot be read: ${(error as NodeJS.ErrnoException).code ?? 'unknown'}`);
  }
  const [first = '', ...rest] = text.split('\n').filter((line) => line !== '');
  const header = parsed(first);
  if (header?.['trace'] !== TRACE_VERSION) {
    const what = typeof header?.['trace'] === 'number' ? 'was written by a newer version' : 'is not a trace';
    throw new CommandError('failure', `${path} ${what}`, '`acp-sidecar serve --trace FILE` writes one');
  }
  // A sidecar that was killed leaves a last line that is cut off.
  const lines = rest.map(lineOf).filter((line) => line !== undefined);
  return { part: Number(header['part'] ?? 1), lines };
}

function lineOf(text: string): TraceLine | undefined {
  const value = parsed(text);
  if (!value) return undefined;
  const { time, peer, id } = value;
  if (typeof time !== 'number' || typeof id !== 'number' || (peer !== 'agent' && peer !== 'client')) return undefined;
  const { to, event, raw } = value as { to?: TraceLine['to']; event?: TraceLine['event']; raw?: string };
  const wire = valueAt(text, ['message']);
  return {
    time,
    peer,
    id,
    ...(to !== undefined && { to }),
    ...(event !== undefined && { event }),
    ...(wire !== undefined && { wire }),
    ...(raw !== undefined && { raw }),
  };
}

function parsed(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value = parseWire(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
