/** Who has seen a tool call's live patches: a session on a log in memory, with clients that are pumped by hand. */
import { expect, it, onTestFinished } from 'vitest';
import { emptySessionState } from '../../../protocol/v1/session-state.ts';
import { captureOutbox } from '../../../proxy/client-methods/capture-outbox.ts';
import { createLogger } from '../../../proxy/log.ts';
import type { Client } from '../../../proxy/session/client.ts';
import { pump } from '../../../proxy/session/pump.ts';
import { Session, type SessionHost } from '../../../proxy/session/session.ts';
import { GroupCommit } from '../../../storage/group-commit.ts';
import { MemoryEventLog } from '../../../storage/memory-event-log.ts';
import { sessionRow } from '../../support/session-row.ts';
import { waitFor } from '../../support/wait-for.ts';

const CALL = { sessionUpdate: 'tool_call', toolCallId: 't', title: 'T', status: 'in_progress' };
const PATCH = { sessionUpdate: 'tool_call_update', toolCallId: 't', rawOutput: 'patched' };
const DONE = { sessionUpdate: 'tool_call_update', toolCallId: 't', status: 'completed' };
const FAILED = { ...DONE, status: 'failed' };

function openSession(): Session {
  const log = new MemoryEventLog();
  const commit = new GroupCommit(log, { onFailed: () => undefined });
  const host = {
    log,
    boot: 'boot00',
    config: {},
    logger: createLogger('silent'),
    now: Date.now,
    newId: () => 'id',
    backlog: { bytes: 0 },
    touched: ({ order }: Session) => {
      if (order.pending || order.peekRow()) commit.offer(order);
    },
    stalled: () => undefined,
    watch: { watched: (_session: Session, _event: unknown, options: unknown) => options },
  } as unknown as SessionHost;
  const session = new Session(host, sessionRow(1), emptySessionState(), 0);
  session.setRow({});
  onTestFinished(() => session.close());
  return session;
}

function client(): Client {
  return {
    id: 1,
    role: 'controller',
    name: undefined,
    sidecar: false,
    hidden: new Set(),
    children: true,
    booleanOptions: true,
    capabilities: {},
    lastActive: 1,
    clientId: undefined,
    identity: undefined,
    open: true,
    send: () => undefined,
    expect: () => '1',
    forget: () => undefined,
    detach: () => undefined,
    kick: () => undefined,
  };
}

function say(session: Session, ...updates: readonly { readonly sessionUpdate: string }[]): void {
  for (const value of updates) session.intake.update({ wire: JSON.stringify(value), value });
}

/** What the client is sent once its socket takes everything. */
function rest(session: Session, of: Client): string[] {
  const attachment = session.clients.get(of);
  if (!attachment) throw new Error('it is not attached');
  const outbox = captureOutbox(1_000_000);
  expect(pump(session, attachment, outbox, 1_000_000, () => undefined)).toBe('tip');
  return outbox.messages().filter((wire) => wire.includes('patched'));
}

const committed = (session: Session, head: number): Promise<unknown> =>
  waitFor(`${head} events`, () => session.order.head === head);

it.each([
  ['says all of it again', { ...DONE, rawOutput: 'again' }, 2],
  ['says none of it', DONE, 3],
  ['says null, which is unchanged', { ...DONE, rawOutput: null }, 3],
])(
  '[TR3] a patch becomes an event before the next one of its call, unless that says it all: it %s',
  (_what, next, events) => {
    const session = openSession();
    say(session, CALL, PATCH);
    expect(session.order.lastSeq).toBe(1);
    say(session, next);
    expect(session.order.lastSeq).toBe(events);
  },
);

it('[TR4] a client that falls behind before the patch is shown gets its event', async () => {
  const session = openSession();
  const slow = client();
  const attachment = session.attach(slow, session.order.tip);
  say(session, CALL, PATCH, DONE);
  // Its socket is full: the pump leaves it where it is.
  expect(pump(session, attachment, { ...captureOutbox(0), room: 0, total: 0 }, 1000, () => undefined)).toBe('full');
  await committed(session, 3);
  expect(rest(session, slow)).toHaveLength(1);
});

it('[TR4] a client at the tip sees the patch once', async () => {
  const session = openSession();
  const fast = client();
  session.attach(fast, session.order.tip);
  say(session, CALL, PATCH, DONE);
  await committed(session, 3);
  expect(rest(session, fast)).toHaveLength(1);
});

it('[TR4] a client that attaches while the call is not committed is owed the patch and not its event, but the event of the next', async () => {
  const session = openSession();
  say(session, CALL, PATCH);
  const late = client();
  session.intake.owePending(session.attach(late, session.order.tip));
  say(session, DONE);
  await committed(session, 3);
  const shown = rest(session, late);
  expect(shown.length).toBeGreaterThan(0);
  expect(shown.filter((wire) => wire.includes('"log1-2"'))).toEqual([]);
  const attachment = session.clients.get(late);
  if (attachment) attachment.behind = true;
  say(session, PATCH, FAILED);
  await committed(session, 5);
  expect(rest(session, late)).toHaveLength(1);
});

it('[TR4] a client that begins its view anew before the event is committed is sent the event', async () => {
  const session = openSession();
  const again = client();
  session.attach(again, session.order.tip);
  say(session, CALL);
  await committed(session, 1);
  say(session, PATCH);
  expect(rest(session, again)).toHaveLength(1);
  say(session, DONE);
  session.attach(again, { seq: 0, offset: 0 });
  await committed(session, 3);
  expect(rest(session, again)).toHaveLength(1);
});
