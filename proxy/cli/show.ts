/** `acp-sidecar show ID`: what a session is and where it stands. */
import { decodeWire, stringifyWire } from '../../protocol/wire-text.ts';
import { coldTail } from './cold-tail.ts';
import { flushed, printTable, printWire, readEvents, requireSession, sessionJson, withStore } from './read-store.ts';

/** How a turn stands; `open` is one that runs. One that a crash interrupted is ended, as its repair will say. */
interface LastTurn {
  turnId: string;
  state: 'queued' | 'open' | 'ended';
}

function shown(value: unknown): string {
  if (typeof value !== 'object' || value === null) return String(value);
  if (Array.isArray(value)) return value.map(shown).join(', ');
  return Object.entries(value)
    .map(([key, inner]) => `${key} ${shown(inner)}`)
    .join(', ');
}

export async function showSession(storeDir: string, sessionId: string, json: boolean): Promise<void> {
  await withStore(storeDir, async (log) => {
    const row = requireSession(log, sessionId);
    const types: Record<string, number> = {};
    let lastTurn: LastTurn | undefined;
    await readEvents(log, row, (event) => {
      types[event.type] = (types[event.type] ?? 0) + 1;
      const turnId = decodeWire(event.turnId ?? '');
      if (event.type === 'turn_queued') lastTurn = { turnId, state: 'queued' };
      if (event.type === 'turn_started') lastTurn = { turnId, state: 'open' };
      if (event.type === 'turn_ended' && lastTurn?.turnId === turnId) lastTurn.state = 'ended';
    });
    const repair: Record<string, number> = {};
    for (const event of await coldTail(storeDir, log, row)) {
      repair[event.type] = (repair[event.type] ?? 0) + 1;
      if (event.type === 'turn_ended' && lastTurn?.turnId === decodeWire(event.turnId ?? '')) lastTurn.state = 'ended';
    }
    const facts = {
      ...sessionJson(log, row),
      eventTypes: types,
      turns: types['turn_started'] ?? 0,
      lastTurn,
      repair: Object.keys(repair).length > 0 ? repair : undefined,
    };
    if (json) printWire(stringifyWire(facts));
    else {
      const known = Object.entries(facts).filter(([, value]) => value !== undefined);
      printTable(known.map(([key, value]) => [key, shown(value)]));
    }
    await flushed();
  });
}
