/** `session/new`: the agent makes the session, the log records it, then the client hears of it. */
import { posix, win32 } from 'node:path';
import {
  type JsonObject,
  type RequestMessage,
  errorText,
  isObject,
  paramsOf,
  responseText,
} from '../../protocol/json-rpc.ts';
import { rpcError } from '../../protocol/error.ts';
import { memberAt, setValue, splice, stringifyWire, valueAt } from '../../protocol/wire-text.ts';
import { isSessionId } from '../../storage/log-keys.ts';
import type { Connection } from '../connection.ts';
import { serversDigest } from '../kept-servers.ts';
import type { Session } from '../session/session.ts';
import { resultFor } from '../session/client-view.ts';
import { withSidecarMeta } from '../../protocol/sidecar-meta.ts';
import { agentParams, respond, withAgent } from './pass.ts';
import { attachAt } from './session-of.ts';

export function newSession(connection: Connection, message: RequestMessage): void {
  const { cwd } = paramsOf(message);
  if (typeof cwd !== 'string' || !isAbsolutePath(cwd)) {
    connection.fail(message.id, 'invalid_params', 'session/new needs a cwd that is an absolute path');
    return;
  }
  if (connection.house.log.lowOnSpace) {
    connection.fail(message.id, 'not_persisted');
    return;
  }
  withAgent(connection, message, (agent) => {
    const { registry } = connection.house;
    const created = registry.creating();
    const agentId = agent.request('session/new', agentParams(message), (answer) => {
      connection.forwarded.delete(message.id);
      const facts = answer.outcome === 'answered' ? answer.message.value['result'] : undefined;
      const agentSessionId = isObject(facts) ? facts['sessionId'] : undefined;
      if (answer.outcome !== 'answered' || answer.message.error || !isSessionId(agentSessionId)) {
        created();
        if (answer.outcome === 'answered' && !answer.message.error) {
          connection.fail(message.id, 'internal', 'the agent answered session/new without a usable sessionId');
          connection.kick();
        } else respond(connection, message.id, answer);
        return;
      }
      const { result, wire } = answer.message;
      const response = result ? wire.slice(result.valueStart, result.valueEnd) : '{}';
      registry.create(
        { ...factsOf(paramsOf(message), cwd), agentSessionId, response },
        (session) => introduce(connection, message, session, response),
        () => {
          connection.send(errorText(message.id, stringifyWire(rpcError('not_persisted'))));
          connection.kick();
        },
      );
      created();
    });
    connection.forwarded.set(message.id, agentId);
  });
}

/** Of the agent's machine, which need not be of this kind. */
function isAbsolutePath(path: string): boolean {
  return posix.isAbsolute(path) || win32.isAbsolute(path);
}

/** What is kept of the request: of `mcpServers` the names only. */
export function factsOf(
  params: JsonObject,
  cwd: string,
): {
  cwd: string;
  additionalDirectories: readonly string[] | undefined;
  mcpServerNames: readonly string[];
} {
  const directories = params['additionalDirectories'];
  const servers = params['mcpServers'];
  return {
    cwd,
    additionalDirectories: Array.isArray(directories)
      ? directories.filter((entry): entry is string => typeof entry === 'string')
      : undefined,
    mcpServerNames: Array.isArray(servers)
      ? servers.flatMap((server: unknown) =>
          isObject(server) && typeof server['name'] === 'string' ? [server['name']] : [],
        )
      : [],
  };
}

/** The client that asked is on the session from its first event on, and gets its response before anything else. */
export function introduce(
  connection: Connection,
  message: RequestMessage,
  session: Session,
  response: string,
  seq = 1,
): void {
  rememberServers(connection, message, session);
  const servers = connection.house.mcpServers.get(session.sessionId);
  session.boundServers = servers === undefined ? undefined : serversDigest(servers);
  const at = { seq, offset: 0 };
  const found = memberAt(response, ['sessionId']);
  const named = found ? splice(response, [setValue(found, stringifyWire(session.sessionId))]) : response;
  const result = withSidecarMeta(resultFor(connection, named), { eventId: session.eventId(at) });
  const wire = responseText(message.id, result);
  connection.answerMade(wire);
  if (!connection.open) return;
  attachAt(connection, session, at).owe({ ...at, what: 'answer', wire });
  session.attached(connection);
  connection.kick();
}

/** `mcpServers` may hold secrets: memory only, for the next time that the session is bound. */
export function rememberServers(connection: Connection, message: RequestMessage, session: Session): void {
  // The agent runs what they say, so they are not for somebody who only looks on.
  if (!message.params || connection.role === 'observer') return;
  const params = message.wire.slice(message.params.valueStart, message.params.valueEnd);
  const servers = valueAt(params, ['mcpServers']);
  if (servers?.startsWith('[')) connection.house.mcpServers.set(session.sessionId, servers);
}
