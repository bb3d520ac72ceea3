/** Sessions of the real registry whose commits are made by hand. */
import { expect, it } from 'vitest';
import { AgentLink } from '../../../proxy/agent/agent-link.ts';
import { type ResponseMessage, parseMessage } from '../../../protocol/json-rpc.ts';
import { recordBound } from '../../../proxy/agent/binding.ts';
import { boundHits } from '../../../proxy/bounds.ts';
import type { Config } from '../../../proxy/config.ts';
import { silentLogger } from '../../../proxy/log.ts';
import { Metrics } from '../../../proxy/metrics.ts';
import { Registry } from '../../../proxy/registry.ts';
import type { AgentPort } from '../../../proxy/session/agent-port.ts';
import type { Client } from '../../../proxy/session/client.ts';
import { EventWatch } from '../../../proxy/session/event-watch.ts';
import type { Session, SessionHost } from '../../../proxy/session/session.ts';
import { HistoryCache } from '../../../storage/history-cache.ts';
import { MemoryEventLog } from '../../../storage/memory-event-log.ts';
import { testScope } from '../../support/scope.ts';
import { tempDir } from '../../support/temp-dir.ts';
import { waitFor } from '../../support/wait-for.ts';

const FULL = { outcome: 'not_committed', cause: 'no_space', message: 'No space left on device' } as const;

interface House {
  readonly registry: Registry;
  readonly link: AgentLink;
  readonly session: Session;
  /** What the agent was sent. */
  readonly toAgent: readonly string[];
}

function openHouse(): House {
  // Its commits end at once.
  const log = new MemoryEventLog({ later: (task) => task() });
  let ids = 0;
  const host: SessionHost = {
    log,
    history: new HistoryCache(log, tempDir(testScope())),
    boot: 'boot',
    config: { onBusy: 'queue', maxMessageBytes: 1_000_000 } as Config,
    logger: silentLogger(),
    now: Date.now,
    newId: () => `id-${++ids}`,
    backlog: { bytes: 0 },
    touched: () => undefined,
    bind: () => ({ outcome: 'bound', agent: link, agentSessionId: 'a' }),
    stalled: () => undefined,
    watch: new EventWatch(new Metrics(), Date.now),
    damaged: () => undefined,
    asleep: () => undefined,
  };
  const registry = new Registry(host, 100);
  const toAgent: string[] = [];
  const link: AgentLink = new AgentLink({
    write: (text) => toAgent.push(text) > 0,
    handler: {
      update: (id, update) => registry.update(id, update),
      request: () => undefined,
      notification: () => undefined,
      oversized: () => undefined,
      readDone: () => undefined,
    },
    logger: silentLogger(),
    maxMessageBytes: 1_000_000,
    restart: () => undefined,
    dropped: () => undefined,
  });
  let made: Session | undefined;
  const refused = (message: string): void => {
    throw new Error(message);
  };
  registry.create({ agentSessionId: 'a', cwd: '/', mcpServerNames: [], response: '{}' }, (it) => (made = it), refused);
  for (const session of registry.open()) commit(session);
  if (!made) throw new Error('it was not made');
  return { registry, link, session: made, toAgent };
}

function commit({ order, log }: Session): void {
  const records = order.peek(1000, 1_000_000);
  const row = order.peekRow();
  const appends = records.length > 0 ? [{ num: order.num, firstSeq: order.head + 1, records }] : [];
  void log.commit({ appends, rows: row ? [row] : [] });
  order.settled({ outcome: 'committed' }, records.length, row);
  order.published();
}

function noRoom({ order }: Session): void {
  order.settled(FULL, order.peek(1000, 1_000_000).length, order.peekRow());
  order.published();
}

function say(link: AgentLink, text: string): void {
  const update = { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } };
  const params = { sessionId: 'a', update };
  link.data(Buffer.from(`${JSON.stringify({ jsonrpc: '2.0', method: 'session/update', params })}\n`));
}

it('[DU6] what waits for the end of a turn goes on when the turn is refused on a full disk', () => {
  const { session } = openHouse();
  const sent: string[] = [];
  const client = { send: (wire: string) => sent.push(wire), kick: () => undefined } as unknown as Client;
  const text = { params: '{}', prompt: '[]', promptId: undefined, digest: 'd', traceparent: undefined };
  session.turns.prompt({ client, requestId: '1', ...text });
  let idle = false;
  session.turns.whenIdle(() => (idle = true));
  expect(idle).toBe(false);
  noRoom(session);
  expect(sent.join()).toContain('not_persisted');
  expect([session.turns.busy, idle]).toEqual([false, true]);
});

it.each([
  ['[RN2] text that is', { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: 'open' } }],
  ['[TR3] progress of a tool call that is', { sessionUpdate: 'tool_call_update', toolCallId: 't', rawOutput: 'open' }],
])('%s open when the agent exits becomes an event', (_what, open) => {
  const { session, link } = openHouse();
  const call = { sessionUpdate: 'tool_call', toolCallId: 't', title: 'T', status: 'completed' };
  for (const update of [call, open]) {
    const params = { sessionId: 'a', update };
    link.data(Buffer.from(`${JSON.stringify({ jsonrpc: '2.0', method: 'session/update', params })}\n`));
  }
  commit(session);
  const { head } = session.order;
  session.agentExited('it is gone');
  commit(session);
  expect(session.order.head).toBe(head + 1);
  let last = '';
  session.log.scan(session.order.num, head + 1, head + 1, (_seq, record, length) => {
    last = record.latin1Slice(0, length);
    return true;
  });
  expect(last).toContain('"open"');
});

it('[SS3] what the agent still says of a deleted session is not written, in the stream of its text either', () => {
  const { registry, link, session } = openHouse();
  for (const text of ['one ', 'two ', 'three ']) say(link, text);
  expect(session.order.openRun?.text).toBe('one two three ');
  let problem: string | undefined = 'not yet';
  registry.remove(session, (what) => (problem = what));
  say(link, 'while it is deleted');
  commit(session);
  expect(problem).toBeUndefined();
  for (const text of ['late ', 'later ']) say(link, text);
  expect(session.order.quiet).toBe(true);
  // As a bind that began before.
  recordBound(session, 'b', 'new', '{}');
  expect(session.order.quiet).toBe(true);
  // As a replay that was held back, or as a child of it.
  session.intake.update({ wire: '{"sessionUpdate":"plan"}', value: { sessionUpdate: 'plan' } });
  expect(session.order.quiet).toBe(true);
});

it('[DU6] a deletion that is refused on a full disk changes nothing: what was said meanwhile goes on', () => {
  const { registry, link, session } = openHouse();
  session.setRow({ title: 'as it was' });
  say(link, 'before ');
  let problem: string | undefined;
  registry.remove(session, (what) => (problem = what));
  for (const text of ['while ', 'it ', 'lasts ']) say(link, text);
  session.intake.update({ wire: '{"sessionUpdate":"plan"}', value: { sessionUpdate: 'plan' } });
  const noted: number[] = [];
  session.order.note(({ seq }) => noted.push(seq));
  // The end is not among what the next commit takes, and its row neither.
  expect(session.order.peek(1, 1)).toHaveLength(1);
  expect(session.order.peekRow()).toBeUndefined();
  noRoom(session);
  expect(problem).toContain('No space');
  expect(registry.get('a')).toEqual({ session });
  expect(session.row).toMatchObject({ tombstone: false, title: 'as it was' });
  const waiting = session.order.peek(1000, 1_000_000).map((record) => record.latin1Slice());
  expect(waiting.join()).toContain('before while it lasts ');
  expect(waiting.at(-1)).toContain('"plan"');
  expect(waiting.join()).not.toContain('deleted');
  commit(session);
  expect(noted).toEqual([session.order.head]);
  expect(registry.byAgentId('a')).toBe(session);
});

it('what stood behind a prompt that is refused on a full disk keeps its place', () => {
  const { link, session } = openHouse();
  const text = { params: '{}', prompt: '[]', promptId: undefined, digest: 'd', traceparent: undefined };
  const client = { send: () => undefined, kick: () => undefined } as unknown as Client;
  session.turns.prompt({ client, requestId: '1', ...text });
  const noted: unknown[] = [];
  session.order.note((at) => noted.push(at));
  expect(noted).toEqual([]);
  noRoom(session);
  expect(noted).toEqual([{ seq: session.order.head, offset: 0 }]);
  say(link, 'on');
  expect(session.order.openRun?.text).toBe('on');
});

it('[TU7] [DU6] an event that is refused on a full disk leaves no gap in what was folded behind it', () => {
  const { session, link, toAgent } = openHouse();
  const sent: string[] = [];
  const client = { send: (wire: string) => sent.push(wire), kick: () => undefined, open: true } as unknown as Client;
  const text = {
    params: '{"sessionId":"a"}',
    prompt: '[{"type":"text","text":"x"}]',
    digest: 'd',
    traceparent: undefined,
  };
  session.turns.prompt({ client, requestId: '1', ...text, promptId: 'p' });
  for (let i = 0; i < 3; i++) commit(session);
  const asked = JSON.parse(toAgent.at(-1) ?? '{}') as { id: number };
  // One more is queued and refused; behind it the first one ends.
  session.turns.prompt({ client, requestId: '2', ...text, promptId: 'q' });
  link.data(Buffer.from(`${JSON.stringify({ jsonrpc: '2.0', id: asked.id, result: { stopReason: 'end_turn' } })}\n`));
  session.turns.prompt({ client, requestId: '3', ...text, promptId: 'p' });
  noRoom(session);
  expect(session.state.prompts.get('p')?.ended).toBe(session.order.lastSeq);
  session.turns.prompt({ client, requestId: '4', ...text, promptId: 'p' });
  commit(session);
  const answers = sent.map(
    (wire) => JSON.parse(wire) as { id: number; result?: { stopReason: string }; error?: object },
  );
  expect(answers.filter(({ error }) => error).map(({ id }) => id)).toEqual([2]);
  expect(
    answers
      .filter(({ result }) => result?.stopReason === 'end_turn')
      .map(({ id }) => id)
      .toSorted((a, b) => a - b),
  ).toEqual([1, 3, 4]);
  session.close();
});

it('a prompt whose turn_started is refused on a full disk is no message that a restore must bring back', () => {
  const { session } = openHouse();
  const text = { params: '{}', prompt: '[]', promptId: undefined, digest: 'd', traceparent: undefined };
  const client = { send: () => undefined, kick: () => undefined } as unknown as Client;
  session.turns.prompt({ client, requestId: '1', ...text });
  expect(session.state.userMessages).toBe(1);
  noRoom(session);
  expect(session.state.userMessages).toBe(0);
});

it('[TU11] a queued prompt is not put off for ever by an agent that goes on talking', async () => {
  const { session, link, toAgent } = openHouse();
  const text = { params: '{"sessionId":"a"}', prompt: '[]', promptId: undefined, digest: 'd', traceparent: undefined };
  const client = { send: () => undefined, kick: () => undefined } as unknown as Client;
  session.turns.prompt({ client, requestId: '1', ...text });
  session.turns.prompt({ client, requestId: '2', ...text });
  for (let i = 0; i < 3; i++) commit(session);
  const prompts = (): string[] => toAgent.filter((wire) => wire.includes('session/prompt'));
  const asked = JSON.parse(prompts()[0] ?? '{}') as { id: number };
  link.data(Buffer.from(`${JSON.stringify({ jsonrpc: '2.0', id: asked.id, result: { stopReason: 'end_turn' } })}\n`));
  const ended = performance.now();
  await waitFor(
    'the next prompt to be forwarded',
    () => {
      say(link, 'and on ');
      commit(session);
      return prompts().length === 2;
    },
    { intervalMs: 10, timeoutMs: 8000 },
  );
  // Nor was it forwarded into what belongs to the turn before.
  expect(performance.now() - ended).toBeGreaterThan(1000);
  session.close();
});

it("[AP10] an agent's cancel means a question of its own life, whatever its ids", () => {
  const { session } = openHouse();
  const life = (): { agent: AgentPort; got: string[] } => {
    const got: string[] = [];
    return { got, agent: { respond: (wire: string) => got.push(wire) } as unknown as AgentPort };
  };
  const [first, second] = [life(), life()];
  const params = { sessionId: 'a', toolCall: { toolCallId: 't' }, options: [] };
  const request = { id: '1', method: 'session/request_permission', params, paramsText: JSON.stringify(params) };
  session.approvals.ask({ ...request, agent: first.agent });
  commit(session);
  // Decided, and not written yet.
  session.approvals.cancelAll();
  session.agentExited('it crashed');
  session.approvals.ask({ ...request, agent: second.agent });
  expect(session.approvals.cancelByAgent('1', second.agent)).toBe(true);
  for (let i = 0; i < 3; i++) commit(session);
  expect(first.got).toEqual([]);
  expect(second.got.map((wire) => JSON.parse(wire) as unknown)).toMatchObject([
    { id: 1, result: { outcome: { outcome: 'cancelled' } } },
  ]);
});

function toolShows(session: Session, toolCallId: string, terminalId: string, text: string): void {
  const content = [
    { type: 'content', content: { type: 'text', text } },
    { type: 'terminal', terminalId },
  ];
  const value = { sessionUpdate: 'tool_call', toolCallId, title: 'T', content };
  session.intake.update({ wire: JSON.stringify(value), value });
}

it('[RQ6] shown_terminals: what tool calls show is kept within a bound while their terminals run, the newest first', () => {
  const { session, link } = openHouse();
  const client = { open: false, clientId: 'c' } as unknown as Client;
  const created = parseMessage('{"jsonrpc":"2.0","id":1,"result":{"terminalId":"t"}}') as ResponseMessage;
  const params = { sessionId: 'a' };
  const request = { id: '1', method: 'terminal/create', params, paramsText: '{}', agent: link };
  session.clientRequests.terminals.answered(request, client, created);
  const text = 'x'.repeat(10_000);
  for (let n = 0; n < 300; n++) toolShows(session, `call-${n}`, 't', text);
  // Terminals that no client made do not count.
  for (let n = 0; n < 300; n++) toolShows(session, `other-${n}`, 'unknown', text);
  for (let n = 0; n < 5; n++) commit(session);
  session.agentExited('it is gone');
  const appended = session.order
    .peek(1000, 100_000_000)
    .map((record) => record.latin1Slice())
    .filter((record) => record.includes('"terminal":true'));
  expect(appended.length).toBeGreaterThan(90);
  expect(appended.length).toBeLessThan(110);
  expect(appended.at(-1)).toContain('"call-299"');
  expect(boundHits.shown_terminals).toBeGreaterThan(0);
});
