/** Sessions of the real registry whose commits are made by hand. */
import { expect, it } from 'vitest';
import { AgentLink } from '../../../proxy/agent/agent-link.ts';
import type { Config } from '../../../proxy/config.ts';
import { silentLogger } from '../../../proxy/log.ts';
import { Metrics } from '../../../proxy/metrics.ts';
import { Registry } from '../../../proxy/registry.ts';
import type { Client } from '../../../proxy/session/client.ts';
import { EventWatch } from '../../../proxy/session/event-watch.ts';
import type { Session, SessionHost } from '../../../proxy/session/session.ts';
import { HistoryCache } from '../../../storage/history-cache.ts';
import { MemoryEventLog } from '../../../storage/memory-event-log.ts';
import { testScope } from '../../support/scope.ts';
import { tempDir } from '../../support/temp-dir.ts';

const FULL = { outcome: 'not_committed', cause: 'no_space', message: 'No space left on device' } as const;

interface House {
  readonly registry: Registry;
  readonly link: AgentLink;
  readonly session: Session;
}

function openHouse(): House {
  const log = new MemoryEventLog();
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
  const link: AgentLink = new AgentLink({
    write: () => true,
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
  return { registry, link, session: made };
}

function commit({ order }: Session): void {
  order.settled({ outcome: 'committed' }, order.peek(1000, 1_000_000).length, order.peekRow());
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
  // As a replay that was held back, or as a child of it.
  session.intake.update({ wire: '{"sessionUpdate":"plan"}', value: { sessionUpdate: 'plan' } });
  expect(session.order.quiet).toBe(true);
});
