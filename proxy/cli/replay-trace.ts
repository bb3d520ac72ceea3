/**
 * `acp-sidecar replay-trace FILE`: as an agent, `serve -- acp-sidecar replay-trace FILE` gets again what the recorded
 * agent said; at a terminal, the trace is printed for people.
 */
import '../../storage/latin1.ts';
import { LineReader } from '../../protocol/line-reader.ts';
import { parseMessage } from '../../protocol/json-rpc.ts';
import { decodeWire, valueAt } from '../../protocol/wire-text.ts';
import { AgentReplay } from '../trace/agent-replay.ts';
import { type TraceLine, readTrace } from '../trace/read-trace.ts';
import { CommandError } from './exit-code.ts';
import { flushed, printText } from './read-store.ts';
import { hasColour, paint } from './terminal.ts';

export interface ReplayTraceOptions {
  readonly print?: boolean;
  /** Which process of the agent is played, from 1. */
  readonly life?: string;
  readonly realTime?: boolean;
}

const MAX_LINE_BYTES = 256 * 1024 * 1024;
const TEXT_CHARACTERS = 60;

export async function replayTrace(path: string, options: ReplayTraceOptions): Promise<void> {
  const trace = readTrace(path);
  if (options.print === true || process.stdin.isTTY) await printTrace(trace);
  else await playTrace(trace, options);
}

async function playTrace(trace: readonly TraceLine[], { life = '1', realTime }: ReplayTraceOptions): Promise<void> {
  const lives = trace.filter(({ peer, event }) => peer === 'agent' && event === 'started').map(({ id }) => id);
  const chosen = Number(life);
  const replay = new AgentReplay(trace, chosen, {
    write: (wire) => new Promise((resolve) => process.stdout.write(`${wire}\n`, 'latin1', () => resolve())),
    note: (text) => process.stderr.write(`replay-trace: ${text}\n`),
    ...(realTime && { pause: (ms: number) => new Promise((resolve) => setTimeout(resolve, Math.max(0, ms))) }),
  });
  if (replay.length === 0) {
    throw new CommandError('usage', `the trace has no agent process ${life}`, `it has: ${lives.join(', ') || 'none'}`);
  }
  // It ended in the recording while the sidecar went on: so does this one.
  const diesAtEnd = lives.some((id) => id > chosen);
  let work = replay.play();
  const dead = (): never => process.exit(1);
  const next = (wire: string): void => {
    work = work.then(() => replay.receive(wire)).then(() => (diesAtEnd && replay.done ? dead() : undefined));
  };
  const reader = new LineReader(MAX_LINE_BYTES, { line: next, oversized: () => undefined });
  await new Promise<void>((resolve) => {
    process.stdin.on('data', (chunk: Buffer) => reader.push(chunk.latin1Slice()));
    process.stdin.once('end', resolve);
  });
  reader.end();
  await work;
}

async function printTrace(trace: readonly TraceLine[]): Promise<void> {
  const colour = hasColour();
  for (const line of trace) {
    const time = new Date(line.time).toISOString().slice(11, 23);
    const peer = `${line.peer} ${line.id}`;
    const inward = line.to === 'sidecar';
    const arrow = line.event ? '  ' : inward ? '->' : '<-';
    const cells = `${peer.padEnd(10)} ${arrow} ${contentOf(line)}`;
    printText(`${time}  ${cells}`, (text) => {
      if (line.event) return paint(text, 'dim', colour);
      return paint(text, line.peer === 'agent' ? 'green' : 'cyan', colour);
    });
  }
  await flushed();
}

/** The method or what it answers, and the beginning of what it says. */
function contentOf({ event, wire, raw }: TraceLine): string {
  if (event) return event;
  if (wire === undefined) return `not JSON-RPC: ${(raw ?? '').slice(0, TEXT_CHARACTERS)}`;
  const message = parseMessage(wire);
  if (message.kind === 'invalid') return `invalid: ${message.reason}`;
  const size = `${wire.length} B`;
  if (message.kind === 'response') return `${message.result ? 'result' : 'error'} of ${message.id}  ${size}`;
  const id = message.kind === 'request' ? ` ${message.id}` : '';
  return `${message.method}${id}${updateOf(wire)}  ${size}`;
}

function updateOf(wire: string): string {
  const kind = valueAt(wire, ['params', 'update', 'sessionUpdate']);
  if (kind === undefined) return '';
  const text =
    valueAt(wire, ['params', 'update', 'content', 'text']) ?? valueAt(wire, ['params', 'update', 'title']) ?? '';
  return ` ${decodeWire(kind).slice(1, -1)} ${decodeWire(text).slice(0, TEXT_CHARACTERS)}`;
}
