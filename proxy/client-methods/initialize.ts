/**
 * `initialize`: the agent is initialised once, with the first controller; everybody gets its answer and what the
 * sidecar serves beside it. An observer that comes before that waits for nobody: it gets the answer of an earlier life,
 * or what is served without an agent.
 */
import { type RequestMessage, isObject, paramsOf, responseText } from '../../protocol/json-rpc.ts';
import { advertises } from '../../protocol/methods.ts';
import { gateOf, gatesOf, withoutItemsOfType } from '../../protocol/v1/gates.ts';
import { UPDATE_KINDS } from '../../protocol/v1/update-kinds.ts';
import { parseWire, setValue, splice, memberAt, addMember } from '../../protocol/wire-text.ts';
import { notReadyText } from '../agent/agent-host.ts';
import type { Connection } from '../connection.ts';
import { withSidecarMeta } from '../../protocol/sidecar-meta.ts';

const CLIENT_ID = /^[\x21-\x7e]{1,128}$/;

export function initialize(connection: Connection, message: RequestMessage): void {
  const params = paramsOf(message);
  if (typeof params['protocolVersion'] !== 'number') {
    connection.fail(message.id, 'invalid_params', 'initialize needs a protocolVersion that is a number');
    return;
  }
  const refusal = readCapabilities(connection, params['clientCapabilities']);
  if (refusal !== undefined) {
    connection.fail(message.id, 'invalid_params', refusal);
    return;
  }
  const { agentHost } = connection.house;
  const paramsText = message.params ? message.wire.slice(message.params.valueStart, message.params.valueEnd) : '{}';
  const answer = (result: string): void => {
    connection.initialized = true;
    const { id, clientId, role } = connection;
    connection.house.logger.info({ connection: id, clientId, role }, 'client initialized');
    connection.send(responseText(message.id, ourAnswer(result, connection.capabilities)));
    connection.kick();
  };
  const controls = connection.role === 'controller';
  if (controls) agentHost.setInitializeParams(paramsText);
  const ready = controls ? agentHost.ready() : undefined;
  const stored = agentHost.storedAnswer ?? (controls ? undefined : WITHOUT_AGENT);
  if (stored !== undefined) {
    answer(stored);
    return;
  }
  void ready?.then((outcome) => {
    if (outcome.outcome === 'ready') answer(agentHost.storedAnswer ?? '{}');
    else {
      connection.send(notReadyText(message.id, outcome));
      connection.kick();
    }
  });
}

/** Reads what the client can and wants; returns what is wrong with it, if anything. */
function readCapabilities(connection: Connection, value: unknown): string | undefined {
  const capabilities = isObject(value) ? value : {};
  const gates = gatesOf(capabilities);
  const hidden = new Set<number>();
  for (const [name, kind] of Object.entries(UPDATE_KINDS)) {
    const gate = gateOf(name);
    if (gate !== undefined && !gates.has(gate)) hidden.add(kind);
  }
  const meta = isObject(capabilities['_meta']) ? capabilities['_meta'] : {};
  const sidecar = meta['sidecar'];
  if (sidecar !== undefined) {
    if (!isObject(sidecar) || sidecar['version'] !== 1) return '_meta.sidecar.version must be 1';
    const { clientId, name, role } = sidecar;
    if (clientId !== undefined && !(typeof clientId === 'string' && CLIENT_ID.test(clientId))) {
      return '_meta.sidecar.clientId must be 1 to 128 printable ASCII characters';
    }
    if (role !== undefined && role !== 'controller' && role !== 'observer') {
      return '_meta.sidecar.role must be "controller" or "observer"';
    }
    if (role === 'observer') connection.role = 'observer';
    if (typeof clientId === 'string') identify(connection, clientId);
    // Who has a name from its token cannot take another.
    if (typeof name === 'string' && !connection.named) connection.name = name.slice(0, 200);
    connection.sidecar = true;
  }
  connection.capabilities = capabilities;
  connection.hidden = hidden;
  connection.children = gates.has('subagents');
  connection.booleanOptions = gates.has('session.configOptions.boolean');
  return undefined;
}

/** A connection of this client that is still there is a lost one that nobody has noticed. */
export function identify(connection: Connection, clientId: string): void {
  const { house, tokenId } = connection;
  connection.clientId = clientId;
  connection.identity = `${tokenId ?? ''}\0${clientId}`;
  for (const other of house.connections) {
    if (other !== connection && other.identity === connection.identity) other.replace();
  }
}

/** What there is to say of an agent that has not been heard. */
const WITHOUT_AGENT = '{"protocolVersion":1,"agentCapabilities":{},"authMethods":[]}';

/** What the sidecar serves, whatever the agent can. */
const SERVED = ['list', 'resume', 'close', 'delete', 'fork', 'attach'];

function ourAnswer(result: string, clientCapabilities: unknown): string {
  let text = result.startsWith('{') ? result : '{}';
  const methods = memberAt(text, ['authMethods']);
  if (methods && !advertises(clientCapabilities, 'auth.terminal')) {
    const offered = text.slice(methods.valueStart, methods.valueEnd);
    text = splice(text, [setValue(methods, withoutItemsOfType(offered, 'terminal'))]);
  }
  const value = parseWire(text);
  if (!isObject(value) || !isObject(value['agentCapabilities'])) {
    const found = memberAt(text, ['agentCapabilities']);
    text = splice(text, [found ? setValue(found, '{}') : addMember(text, 0, 'agentCapabilities', '{}')]);
  }
  const version = memberAt(text, ['protocolVersion']);
  text = splice(text, [version ? setValue(version, '1') : addMember(text, 0, 'protocolVersion', '1')]);
  const found = memberAt(text, ['agentCapabilities']);
  if (!found) return text;
  let capabilities = text.slice(found.valueStart, found.valueEnd);
  capabilities = setIn(capabilities, 'loadSession', 'true');
  const known = memberAt(capabilities, ['sessionCapabilities']);
  let session = known ? capabilities.slice(known.valueStart, known.valueEnd) : '{}';
  if (!session.startsWith('{')) session = '{}';
  for (const name of SERVED) {
    const parsed = parseWire(session);
    if (!isObject(parsed) || !isObject(parsed[name])) session = setIn(session, name, '{}');
  }
  capabilities = setIn(capabilities, 'sessionCapabilities', session);
  const sidecar = { version: 1, eventId: true, approvals: true, attach: true, history: true };
  return splice(text, [setValue(found, withSidecarMeta(capabilities, sidecar))]);
}

function setIn(object: string, key: string, value: string): string {
  const found = memberAt(object, [key]);
  return splice(object, [found ? setValue(found, value) : addMember(object, 0, key, value)]);
}
