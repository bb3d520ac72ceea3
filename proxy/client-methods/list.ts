/** `session/list`: ours from the log, newest first; after the last page those that only the agent knows. */
import { type JsonObject, type RequestMessage, isObject, paramsOf, responseText } from '../../protocol/json-rpc.ts';
import { items, parseWire, stringifyWire, valueAt } from '../../protocol/wire-text.ts';
import type { SessionRow } from '../../storage/event-log.ts';
import { hiddenAgentSessions, listSessions as listRows } from '../../storage/session-index.ts';
import type { Connection } from '../connection.ts';

const PAGE = 100;
/** The agent's own list is left out when it does not come in this time. */
const AGENT_LIST_MS = 2000;

export function listSessions(connection: Connection, message: RequestMessage): void {
  const { house } = connection;
  const { cwd, cursor } = paramsOf(message);
  if (cwd !== undefined && cwd !== null && typeof cwd !== 'string') {
    connection.fail(message.id, 'invalid_params', 'cwd must be a string');
    return;
  }
  const filter = cwd ?? undefined;
  const page = listRows({ rows: rowsFor(connection), cwd: filter, cursor, limit: PAGE });
  if ('reason' in page) {
    connection.fail(message.id, 'invalid_params', 'the cursor is not one that session/list has given');
    return;
  }
  const ours = page.sessions.map((row) => stringifyWire(sessionInfo(row, house.titles.of(row))));
  const respond = (foreign: readonly string[]): void => {
    const next = page.nextCursor === undefined ? '' : `,"nextCursor":${stringifyWire(page.nextCursor)}`;
    connection.send(responseText(message.id, `{"sessions":[${[...ours, ...foreign].join(',')}]${next}}`));
    connection.kick();
  };
  // What only the agent knows is not among the sessions that a token names.
  if (page.nextCursor !== undefined || connection.onlySessions) respond([]);
  else void agentSessions(connection, filter).then(respond);
}

function rowsFor(connection: Connection): Iterable<SessionRow> {
  const { house, onlySessions } = connection;
  if (!onlySessions) return house.log.rows();
  return [...onlySessions].flatMap((id) => house.log.row(id) ?? []);
}

function sessionInfo(row: SessionRow, title: string | undefined): JsonObject {
  const { sessionId, cwd, additionalDirectories } = row;
  return {
    sessionId,
    cwd,
    title,
    additionalDirectories,
    updatedAt: new Date(row.updatedAt).toISOString(),
  };
}

/** What the agent lists beside ours, wire text of each entry. None when it cannot list or is slow. */
async function agentSessions(connection: Connection, cwd: string | undefined): Promise<readonly string[]> {
  const { agentHost, log } = connection.house;
  const stored = agentHost.storedAnswer;
  const link = agentHost.link;
  if (stored === undefined || !link || !agentHost.introduced || !lists(stored)) return [];
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve([]), AGENT_LIST_MS);
    const params = cwd === undefined ? '{}' : stringifyWire({ cwd });
    link.request('session/list', params, (answer) => {
      clearTimeout(timer);
      const { result, wire } = answer.outcome === 'answered' ? answer.message : { result: undefined, wire: '' };
      const listed = result ? valueAt(wire.slice(result.valueStart, result.valueEnd), ['sessions']) : undefined;
      const hidden = hiddenAgentSessions(log.rows());
      resolve(
        items(listed ?? '[]')
          .map(([start, end]) => (listed ?? '').slice(start, end))
          .filter((entry) => {
            const value = parseWire(entry);
            if (!isObject(value) || typeof value['sessionId'] !== 'string' || hidden.has(value['sessionId']))
              return false;
            return cwd === undefined || value['cwd'] === cwd;
          }),
      );
    });
  });
}

function lists(initializeResult: string): boolean {
  const value = parseWire(initializeResult);
  const capabilities = isObject(value) && isObject(value['agentCapabilities']) ? value['agentCapabilities'] : {};
  const session = isObject(capabilities['sessionCapabilities']) ? capabilities['sessionCapabilities'] : {};
  return isObject(session['list']);
}
