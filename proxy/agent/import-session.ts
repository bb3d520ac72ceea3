/**
 * A session that only the agent knows is imported when it is loaded: the agent replays it once, and from then on the log
 * has it.
 *
 *   session/load -> collected -> answered, 50 ms of quiet -> events -> row and session_created, the last commit
 *
 * One flight per id. Whatever fails leaves nothing behind, and what replays nothing is no session.
 */
import { rpcError } from '../../protocol/error.ts';
import { stringifyWire } from '../../protocol/wire-text.ts';
import { UPDATE_KINDS, updateKindCode } from '../../protocol/v1/update-kinds.ts';
import { isSessionId } from '../../storage/log-keys.ts';
import { hiddenAgentSessions } from '../../storage/session-index.ts';
import type { House } from '../house.ts';
import { serversDigest } from '../kept-servers.ts';
import type { IncomingUpdate } from '../session/intake.ts';
import type { Session } from '../session/session.ts';
import { capabilitiesOf } from './agent-host.ts';
import { canRestore, isAuthRequired, requestUnlessSilent } from './binding.ts';
import { Swallow } from './swallow.ts';

const QUIET_MS = 50;
const LONGEST_QUIET_MS = 30_000;
const MAX_BYTES = 512 * 1024 * 1024;

export type Imported =
  | { readonly outcome: 'imported'; readonly session: Session }
  | { readonly outcome: 'unknown' }
  /** `error` is wire text for the client. */
  | { readonly outcome: 'failed'; readonly error: string };

/** What a client's request says of the session. Wire text. */
export interface ImportPlace {
  readonly cwd: string;
  readonly additionalDirectories: readonly string[] | undefined;
  readonly mcpServerNames: readonly string[];
  readonly mcpServers: string;
}

const SNAPSHOTS = new Set<number>([
  UPDATE_KINDS.available_commands_update,
  UPDATE_KINDS.current_mode_update,
  UPDATE_KINDS.config_option_update,
  UPDATE_KINDS.session_info_update,
  UPDATE_KINDS.usage_update,
]);

const flights = new WeakMap<House, Map<string, Promise<Imported>>>();

/** Whether it makes sense to ask the agent: it may know the id, and we do not. */
export function mayImport(house: House, sessionId: unknown): sessionId is string {
  if (!isSessionId(sessionId) || house.log.row(sessionId) || house.log.lowOnSpace) return false;
  const stored = house.agentHost.storedAnswer;
  return stored !== undefined && canRestore(capabilitiesOf(stored), 'load');
}

export function importSession(house: House, sessionId: string, place: ImportPlace): Promise<Imported> {
  const known = flights.get(house) ?? new Map<string, Promise<Imported>>();
  flights.set(house, known);
  const flight = known.get(sessionId) ?? fly(house, sessionId, place).finally(() => known.delete(sessionId));
  known.set(sessionId, flight);
  return flight;
}

async function fly(house: House, sessionId: string, place: ImportPlace): Promise<Imported> {
  const { agentHost, registry, now } = house;
  if (hiddenAgentSessions(house.log).has(sessionId)) return { outcome: 'unknown' };
  const ready = await agentHost.ready();
  if (ready.outcome === 'refused') return { outcome: 'failed', error: ready.error };
  if (ready.outcome === 'unavailable') return { outcome: 'failed', error: stringifyWire(ready.error) };
  const updates: IncomingUpdate[] = [];
  let heard = now();
  let bytes = 0;
  const stop = registry.collect(sessionId, (update) => {
    heard = now();
    bytes += update.wire.length;
    if (bytes <= MAX_BYTES) updates.push(update);
  });
  try {
    const { cwd, additionalDirectories, mcpServers } = place;
    const more = additionalDirectories ? `,"additionalDirectories":${stringifyWire(additionalDirectories)}` : '';
    const params = `{"sessionId":${stringifyWire(sessionId)},"cwd":${stringifyWire(cwd)},"mcpServers":${mcpServers}${more}}`;
    const answer = await requestUnlessSilent(ready.link, 'session/load', params, () => heard);
    if (answer.outcome === 'lost') {
      return { outcome: 'failed', error: stringifyWire(rpcError('agent_unavailable', answer.message)) };
    }
    const { result, error, wire } = answer.message;
    if (error) {
      const text = wire.slice(error.valueStart, error.valueEnd);
      return isAuthRequired(text) ? { outcome: 'failed', error: text } : { outcome: 'unknown' };
    }
    await quiet(now, () => heard);
    if (agentHost.link !== ready.link) {
      return { outcome: 'failed', error: stringifyWire(rpcError('agent_unavailable', 'it ended while it replayed')) };
    }
    if (bytes > MAX_BYTES) {
      return { outcome: 'failed', error: stringifyWire(rpcError('message_too_large', `a replay of ${bytes} bytes`)) };
    }
    if (!updates.some(isContent)) return { outcome: 'unknown' };
    const response = result ? wire.slice(result.valueStart, result.valueEnd) : '{}';
    return await store(house, { ...place, agentSessionId: sessionId, response }, updates);
  } finally {
    stop();
  }
}

function store(
  house: House,
  facts: ImportPlace & { readonly agentSessionId: string; readonly response: string },
  updates: readonly IncomingUpdate[],
): Promise<Imported> {
  return new Promise((resolve) => {
    house.registry.import(
      facts,
      updates,
      (session) => {
        const swallow = new Swallow(session);
        session.replay = swallow;
        swallow.watch();
        session.boundServers = serversDigest(facts.mcpServers);
        resolve({ outcome: 'imported', session });
      },
      () => resolve({ outcome: 'failed', error: stringifyWire(rpcError('not_persisted')) }),
    );
  });
}

function isContent({ value, childSessionId }: IncomingUpdate): boolean {
  return childSessionId === undefined && !SNAPSHOTS.has(updateKindCode(value['sessionUpdate']));
}

async function quiet(now: () => number, heard: () => number): Promise<void> {
  const since = now();
  for (;;) {
    const left = Math.min(Math.max(heard(), since) + QUIET_MS, since + LONGEST_QUIET_MS) - now();
    if (left <= 0) return;
    await new Promise((resolve) => setTimeout(resolve, left));
  }
}
