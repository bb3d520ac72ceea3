import { at, type Message, type Received, textAt, updateOf } from './json.ts';
import type { InitializeOptions, RawClient } from './raw-client.ts';
import type { Scope } from './scope.ts';
import { type AgentLife, ScriptedAgent } from './scripted-agent.ts';
import { Sidecar, type SidecarOptions } from './sidecar.ts';

/** A scripted agent behind a sidecar, for any number of sessions and clients. */
export interface Room {
  readonly agent: ScriptedAgent;
  readonly sidecar: Sidecar;
  /** The newest process of the agent. */
  readonly life: () => AgentLife;
  readonly enter: (options?: InitializeOptions, scope?: Scope) => Promise<RawClient>;
}

/** The agent restores a session by `session/resume` and answers `session/prompt` only when the test does. */
export async function openRoom(scope: Scope, options: Partial<SidecarOptions> = {}): Promise<Room> {
  const agent = await ScriptedAgent.listen(scope);
  agent.handlers.set('initialize', () => ({
    protocolVersion: 1,
    agentCapabilities: { sessionCapabilities: { resume: {} } },
  }));
  agent.handlers.set('session/resume', () => ({}));
  const { args = [], ...rest } = options;
  // Most turns are left open by the tests: their end is not waited for.
  const sidecar = await Sidecar.start(scope, { agent: agent.command, ...rest, args: ['--drain', '50ms', ...args] });
  const enter = async (how: InitializeOptions = { sidecar: true }, inner = scope): Promise<RawClient> => {
    const client = await sidecar.unix(inner);
    await client.initialize(how);
    return client;
  };
  return { agent, sidecar, enter, life: () => agent.lives.at(-1) as AgentLife };
}

export const YES = { optionId: 'yes', name: 'Yes', kind: 'allow_once' };
export const NO = { optionId: 'no', name: 'No', kind: 'reject_once' };

let questions = 0;

/** The agent asks; returns the id of its request. */
export function askPermission(life: AgentLife, sessionId: string, toolCall: object = {}, options = [YES, NO]): string {
  const id = `question-${++questions}`;
  const call = {
    toolCallId: `call-${questions}`,
    title: 'Run it',
    kind: 'execute',
    rawInput: { n: questions },
    ...toolCall,
  };
  life.send({ id, method: 'session/request_permission', params: { sessionId, toolCall: call, options } });
  return id;
}

export function choose(optionId: string): object {
  return { outcome: { outcome: 'selected', optionId } };
}

/** What the agent got for its request. */
export async function answerAt(life: AgentLife, id: string): Promise<Message> {
  return (await life.answerTo(id)).message;
}

/** Whether the agent has got anything for its request yet. */
export function isAnswered(life: AgentLife, id: string): boolean {
  return life.received.some(({ message }) => message.method === undefined && message.id === id);
}

/** The n-th card of a session at a client. */
export async function card(client: RawClient, sessionId: string, n = 0): Promise<Received> {
  let seen = 0;
  return client.until(
    `card ${n} of ${sessionId}`,
    ({ message }) => isCard(message) && at(message, 'params', 'sessionId') === sessionId && seen++ === n,
  );
}

export function isCard({ method }: Message): boolean {
  return method === 'session/request_permission' || method === 'elicitation/create';
}

export function cardsOf(client: RawClient, sessionId: string): Received[] {
  return client.received.filter(({ message }) => isCard(message) && at(message, 'params', 'sessionId') === sessionId);
}

export function approvalIdOf({ message }: Received): string {
  return textAt(message, 'params', '_meta', 'sidecar', 'approvalId');
}

export function answerCard(client: RawClient, { message }: Received, result: object): void {
  client.sendMessage({ id: message.id, result });
}

export async function withdrawn(client: RawClient, { message }: Received): Promise<Received> {
  return client.until(
    `the withdrawal of card ${String(message.id)}`,
    (entry) => entry.message.method === '$/cancel_request' && at(entry.message, 'params', 'requestId') === message.id,
  );
}

/** A `_sidecar/approval` of an approval in one of its states. */
export async function toldOf(client: RawClient, approvalId: string, state: string): Promise<Received> {
  return client.until(
    `${approvalId} to be ${state}`,
    ({ message }) =>
      message.method === '_sidecar/approval' &&
      at(message, 'params', 'approvalId') === approvalId &&
      at(message, 'params', 'state') === state,
  );
}

/** Resolves when everything the sidecar had to say to this client by now has arrived. */
export async function settled(client: RawClient): Promise<void> {
  await client.request('session/list', { cwd: '/nowhere' });
}

export function textsOf(client: RawClient, sessionId: string, kind: string): unknown[] {
  return client.updates(sessionId).flatMap(({ message }) => {
    const update = updateOf(message);
    return update?.['sessionUpdate'] === kind ? [at(update, 'content', 'text')] : [];
  });
}
