/**
 * The sessions that only the agent knows, for `session/list`. Its pages are followed until there is enough for one answer
 * or the time is over; the next answer goes on from there.
 */
import { isObject } from '../../protocol/json-rpc.ts';
import { items, parseWire, stringifyWire, valueAt } from '../../protocol/wire-text.ts';
import { hiddenAgentSessions } from '../../storage/session-index.ts';
import type { House } from '../house.ts';
import type { AgentLink } from './agent-link.ts';
import { capabilitiesOf } from './agent-host.ts';

/** The agent's part of an answer may take so long; what has not come by then is left for the next one. */
const AGENT_LIST_MS = 2000;
/** Sessions, and bytes of them, after which no further page is asked for: one answer holds them all in memory. */
const ENOUGH_SESSIONS = 1000;
const ENOUGH_BYTES = 1024 * 1024;
/** An agent whose pages have no end is not followed for ever. */
const MAX_PAGES = 10_000;

/** Where the agent's list goes on. */
export interface AgentListPlace {
  readonly cursor: string;
  /** Pages of the agent before this one. */
  readonly pages: number;
}

export interface ListedByAgent {
  /** Wire text of each entry. */
  readonly sessions: readonly string[];
  readonly next?: AgentListPlace | undefined;
}

interface AgentPage {
  readonly entries: readonly string[];
  readonly nextCursor: string | undefined;
}

const NONE: ListedByAgent = { sessions: [] };
const PLACE = /^agent:(\d{1,6}):(.+)$/s;

export function formatPlace({ pages, cursor }: AgentListPlace): string {
  return Buffer.from(`agent:${pages}:${cursor}`).toString('base64url');
}

/** Undefined when it is no cursor of the agent's part of the list. */
export function parsePlace(cursor: unknown): AgentListPlace | undefined {
  const found = typeof cursor === 'string' ? PLACE.exec(Buffer.from(cursor, 'base64url').toString()) : null;
  return found ? { pages: Number(found[1]), cursor: found[2] as string } : undefined;
}

/** None when the agent cannot list, or is too slow. @param from undefined for the beginning */
export async function listedByAgent(
  house: House,
  cwd: string | undefined,
  from: AgentListPlace | undefined,
): Promise<ListedByAgent> {
  const { agentHost, log, now } = house;
  const { link, storedAnswer } = agentHost;
  if (storedAnswer === undefined || !link || !agentHost.introduced || !lists(storedAnswer)) return NONE;
  const until = now() + AGENT_LIST_MS;
  const sessions = new Map<string, string>();
  const asked = new Set<string>();
  let place = from;
  let pages = from?.pages ?? 0;
  let bytes = 0;
  for (;;) {
    const page = await pageOf(link, cwd, place?.cursor, until - now());
    // A page that does not come is asked for again by who wants it, unless it was all that was wanted.
    if (page === 'late') return place === from ? NONE : { sessions: [...sessions.values()], next: place };
    const hidden = hiddenAgentSessions(log);
    for (const entry of page.entries) {
      const id = idOf(entry, cwd);
      if (id === undefined || hidden.has(id) || sessions.has(id)) continue;
      sessions.set(id, entry);
      bytes += entry.length;
    }
    const { nextCursor: cursor } = page;
    pages++;
    if (cursor === undefined || asked.has(cursor) || pages >= MAX_PAGES) return { sessions: [...sessions.values()] };
    asked.add(cursor);
    place = { cursor, pages };
    if (sessions.size >= ENOUGH_SESSIONS || bytes >= ENOUGH_BYTES) {
      return { sessions: [...sessions.values()], next: place };
    }
  }
}

function pageOf(
  link: AgentLink,
  cwd: string | undefined,
  cursor: string | undefined,
  patienceMs: number,
): Promise<AgentPage | 'late'> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve('late'), patienceMs);
    link.request('session/list', stringifyWire({ cwd, cursor }), (answer) => {
      clearTimeout(timer);
      const { result, wire } = answer.outcome === 'answered' ? answer.message : { result: undefined, wire: '' };
      const text = result ? wire.slice(result.valueStart, result.valueEnd) : '{}';
      const listed = valueAt(text, ['sessions']) ?? '[]';
      const next: unknown = parseWire(valueAt(text, ['nextCursor']) ?? 'null');
      resolve({
        entries: items(listed).map(([start, end]) => listed.slice(start, end)),
        nextCursor: typeof next === 'string' && next !== '' ? next : undefined,
      });
    });
  });
}

/** The id of an entry that the list may have. */
function idOf(entry: string, cwd: string | undefined): string | undefined {
  const value = parseWire(entry);
  if (!isObject(value) || typeof value['sessionId'] !== 'string') return undefined;
  return cwd === undefined || value['cwd'] === cwd ? value['sessionId'] : undefined;
}

function lists(initializeResult: string): boolean {
  const session = capabilitiesOf(initializeResult)['sessionCapabilities'];
  return isObject(session) && isObject(session['list']);
}
