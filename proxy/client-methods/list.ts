/**
 * `session/list`: ours from the log, newest first; on the last page of them, and where it is long on more, those that
 * only the agent knows.
 */
import { type JsonObject, type RequestMessage, paramsOf, responseText } from '../../protocol/json-rpc.ts';
import { stringifyWire } from '../../protocol/wire-text.ts';
import type { SessionRow } from '../../storage/event-log.ts';
import { listSessions as listRows } from '../../storage/session-index.ts';
import { formatPlace, listedByAgent, parsePlace } from '../agent/listed-sessions.ts';
import type { Connection } from '../connection.ts';

const PAGE = 100;

export function listSessions(connection: Connection, message: RequestMessage): void {
  const { house } = connection;
  const { cwd, cursor } = paramsOf(message);
  if (cwd !== undefined && cwd !== null && typeof cwd !== 'string') {
    connection.fail(message.id, 'invalid_params', 'cwd must be a string');
    return;
  }
  const filter = cwd ?? undefined;
  const respond = (sessions: readonly string[], nextCursor: string | undefined): void => {
    const next = nextCursor === undefined ? '' : `,"nextCursor":${stringifyWire(nextCursor)}`;
    connection.send(responseText(message.id, `{"sessions":[${sessions.join(',')}]${next}}`));
    connection.kick();
  };
  const place = parsePlace(cursor);
  const page = place ? { sessions: [] } : listRows({ rows: rowsFor(connection), cwd: filter, cursor, limit: PAGE });
  if ('reason' in page) {
    connection.fail(message.id, 'invalid_params', 'the cursor is not one that session/list has given');
    return;
  }
  const ours = page.sessions.map((row) => stringifyWire(sessionInfo(row, house.titles.of(row))));
  // What only the agent knows is not among the sessions that a token names.
  if (page.nextCursor !== undefined || connection.onlySessions) {
    respond(ours, page.nextCursor);
    return;
  }
  void listedByAgent(house, filter, place).then(({ sessions, next }) =>
    respond([...ours, ...sessions], next && formatPlace(next)),
  );
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
