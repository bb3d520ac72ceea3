/**
 * The recordings in `test/recordings/`: raw traffic of real agents, one JSON object a line,
 * `{"dir":"c2a"|"a2c"|"note","t":milliseconds,"msg":{...}}`. A note with `spawn` begins a life of the agent.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { decodeWire, encodeWire, valueAt } from '../../protocol/wire-text.ts';
import type { Message } from './json.ts';
import { ROOT } from './scripted-agent.ts';

export interface RecordedEntry {
  /** Place in its life, from 0. */
  readonly index: number;
  readonly from: 'client' | 'agent';
  /** The message's JSON as recorded, not re-serialised. */
  readonly text: string;
  readonly message: Message;
}

export interface RecordedLife {
  /** Recording and number of the life, for test titles. */
  readonly name: string;
  readonly entries: readonly RecordedEntry[];
}

interface Line {
  readonly dir: 'c2a' | 'a2c' | 'note';
  readonly msg?: Message;
  readonly note?: { readonly spawn?: string };
}

function livesOf(name: string): RecordedLife[] {
  const text = gunzipSync(readFileSync(join(ROOT, 'test/recordings', `${name}.ndjson.gz`))).toString('utf8');
  const lives: RecordedEntry[][] = [];
  for (const line of text.split('\n')) {
    if (line === '') continue;
    const parsed = JSON.parse(line) as Line;
    if (parsed.note?.spawn !== undefined) lives.push([]);
    const entries = lives.at(-1);
    if (!entries || !parsed.msg) continue;
    entries.push({
      index: entries.length,
      from: parsed.dir === 'c2a' ? 'client' : 'agent',
      text: decodeWire(valueAt(encodeWire(line), ['msg']) ?? ''),
      message: parsed.msg,
    });
  }
  return lives.map((entries, i) => ({ name: `${name} life ${i + 1}`, entries }));
}

/** Every recorded life in which a session was made and prompted. */
export function livesWithNewSession(): RecordedLife[] {
  return readdirSync(join(ROOT, 'test/recordings'))
    .filter((file) => file.endsWith('.ndjson.gz'))
    .map((file) => file.replace(/\.ndjson\.gz$/, ''))
    .sort()
    .flatMap(livesOf)
    .filter(({ entries }) => {
      const asks = (method: string): boolean => entries.some(({ message }) => message.method === method);
      return asks('session/new') && asks('session/prompt');
    });
}
