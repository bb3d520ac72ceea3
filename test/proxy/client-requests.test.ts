/** What waits for a client that was cut off, and approvals while nothing can be written: a session without a process. */
import { describe, expect, it, onTestFinished } from 'vitest';
import type { ResponseMessage } from '../../protocol/json-rpc.ts';
import { parseMessage } from '../../protocol/json-rpc.ts';
import { emptySessionState } from '../../protocol/v1/session-state.ts';
import { createLogger } from '../../proxy/log.ts';
import type { AgentPort } from '../../proxy/session/agent-port.ts';
import type { AgentRequest } from '../../proxy/session/agent-request.ts';
import type { AnswerHandler, Client } from '../../proxy/session/client.ts';
import { ClientRequests } from '../../proxy/session/client-requests.ts';
import { Session, type SessionHost } from '../../proxy/session/session.ts';
import { GroupCommit } from '../../storage/group-commit.ts';
import { MemoryEventLog } from '../../storage/memory-event-log.ts';
import { at } from '../support/json.ts';
import { waitFor } from '../support/wait-for.ts';

/** A client by hand: what it was sent, and its answers. */
class HandClient implements Client {
  readonly id = 1;
  readonly role = 'controller';
  readonly name = undefined;
  readonly sidecar = true;
  readonly hidden = new Set<number>();
  readonly children = true;
  readonly booleanOptions = true;
  readonly capabilities = { fs: { readTextFile: true }, terminal: true };
  readonly lastActive = 1;
  readonly clientId: string | undefined;
  readonly identity: string | undefined;
  readonly sent: unknown[] = [];
  open = true;
  readonly #handlers = new Map<string, AnswerHandler>();
  #next = 1;

  constructor(clientId?: string) {
    this.clientId = clientId;
    this.identity = clientId;
  }

  send(wire: string): void {
    this.sent.push(JSON.parse(wire));
  }

  expect(handler: AnswerHandler): string {
    const id = String(this.#next++);
    this.#handlers.set(id, handler);
    return id;
  }

  forget(id: string): void {
    this.#handlers.delete(id);
  }

  detach(): void {
    // The tests do it by hand.
  }

  kick(): void {
    // Nothing is pumped here.
  }

  answer(id: string, result: object): void {
    const message = parseMessage(JSON.stringify({ jsonrpc: '2.0', id: Number(id), result }));
    this.#handlers.get(id)?.(message as ResponseMessage);
  }
}

interface Desk {
  readonly session: Session;
  readonly log: MemoryEventLog;
  readonly agent: AgentPort;
  /** Everything the agent was answered. */
  readonly answered: unknown[];
  readonly commit: GroupCommit;
}

/** A session on a log in memory, committed as in the server. */
function openDesk(): Desk {
  const log = new MemoryEventLog();
  const commit = new GroupCommit(log, { onFailed: () => undefined, retryMs: 5 });
  const answered: unknown[] = [];
  const agent: AgentPort = {
    request: () => '1',
    notify: () => undefined,
    respond: (wire) => void answered.push(JSON.parse(wire)),
    restart: () => undefined,
  };
  let ids = 0;
  const host = {
    log,
    boot: 'boot00',
    config: {},
    logger: createLogger('silent'),
    now: Date.now,
    newId: () => `id-${++ids}`,
    backlog: { bytes: 0 },
    touched: (session: Session) => {
      if (session.order.pending || session.order.peekRow()) commit.offer(session.order);
    },
    stalled: () => undefined,
    watch: { watched: (_session: Session, _event: unknown, options: unknown) => options },
  } as unknown as SessionHost;
  const row = {
    sessionId: 's',
    num: 1,
    logId: 'abcdefabcdef',
    cwd: '/',
    createdAt: 0,
    updatedAt: 0,
    bound: [],
    low: 1,
  };
  const session = new Session(host, row, emptySessionState(), 0);
  session.agentSessionId = 's';
  session.setRow({});
  onTestFinished(() => session.close());
  return { session, log, agent, answered, commit };
}

function requestOf(desk: Desk, id: string, method: string, params: object = {}): AgentRequest {
  const all = { sessionId: 's', ...params };
  return { id: JSON.stringify(id), method, params: all, paramsText: JSON.stringify(all), agent: desk.agent };
}

function attach(desk: Desk, requests: ClientRequests, client: HandClient): void {
  desk.session.attach(client, desk.session.order.tip);
  requests.clientAttached(client);
}

function cut(desk: Desk, requests: ClientRequests, client: HandClient): void {
  client.open = false;
  desk.session.clients.delete(client);
  requests.clientLeft(client);
}

describe('a client with a clientId that was cut off', () => {
  it('[RQ5] is waited for, and sent its request again under the same key', async () => {
    const desk = openDesk();
    const requests = new ClientRequests(desk.session, 60_000);
    onTestFinished(() => requests.close());
    const first = new HandClient('editor');
    attach(desk, requests, first);
    requests.ask(requestOf(desk, 'r', 'fs/read_text_file'));
    expect(first.sent).toHaveLength(1);
    cut(desk, requests, first);
    expect(desk.answered).toEqual([]);
    expect(requests.idle).toBe(false);
    const second = new HandClient('editor');
    attach(desk, requests, second);
    const key = (client: HandClient): unknown => at(client.sent[0], 'params', '_meta', 'sidecar', 'requestKey');
    expect(key(second)).toBe(key(first));
    second.answer('1', { content: 'x' });
    expect(desk.answered).toEqual([{ jsonrpc: '2.0', id: 'r', result: { content: 'x' } }]);
    expect(requests.idle).toBe(true);
  });

  it('[RQ5] is given up in time: the agent gets an error, and whatever it asks then goes elsewhere or nowhere', async () => {
    const desk = openDesk();
    const requests = new ClientRequests(desk.session, 20);
    onTestFinished(() => requests.close());
    const client = new HandClient('editor');
    attach(desk, requests, client);
    requests.ask(requestOf(desk, 'r1', 'fs/read_text_file'));
    cut(desk, requests, client);
    requests.ask(requestOf(desk, 'r2', 'fs/read_text_file'));
    await waitFor('both errors', () => desk.answered.length === 2);
    expect(desk.answered.map((answer) => at(answer, 'error', 'code'))).toEqual([-32603, -32603]);
    requests.ask(requestOf(desk, 'r3', 'fs/read_text_file'));
    expect(at(desk.answered[2], 'error', 'code')).toBe(-32601);
  });

  it('[RQ5] leaves by itself: the agent gets its error at once', () => {
    const desk = openDesk();
    const requests = new ClientRequests(desk.session, 60_000);
    const client = new HandClient('editor');
    attach(desk, requests, client);
    requests.ask(requestOf(desk, 'r', 'fs/read_text_file'));
    desk.session.clients.delete(client);
    requests.clientLeft(client);
    expect(at(desk.answered[0], 'error', 'code')).toBe(-32603);
  });

  it("[RQ4] takes back what the agent cancels while it is away; an id of another client's live terminal is refused", () => {
    const desk = openDesk();
    const requests = new ClientRequests(desk.session, 60_000);
    onTestFinished(() => requests.close());
    const first = new HandClient('one');
    const second = new HandClient('two');
    attach(desk, requests, first);
    requests.ask(requestOf(desk, 'c1', 'terminal/create'));
    first.answer('1', { terminalId: 't' });
    requests.ask(requestOf(desk, 'r', 'fs/read_text_file'));
    cut(desk, requests, first);
    expect(requests.cancelByAgent('"r"')).toBe(true);
    expect(at(desk.answered[1], 'error', 'code')).toBe(-32800);
    attach(desk, requests, second);
    // The first client is waited for, so the second one gets this only because it is there.
    requests.ask(requestOf(desk, 'c2', 'terminal/create'));
    second.answer('1', { terminalId: 't' });
    expect(at(desk.answered[2], 'error', 'code')).toBe(-32602);
  });
});

describe('while nothing can be written', () => {
  const permission = (desk: Desk, id: string): AgentRequest =>
    requestOf(desk, id, 'session/request_permission', {
      toolCall: { toolCallId: `call-${id}` },
      options: [{ optionId: 'yes', name: 'Y', kind: 'allow_once' }],
    });
  const commits = (desk: Desk): Promise<unknown> => waitFor('the commit', () => !desk.session.order.pending);

  it('[AP3] [DU6] cancelled reaches the agent unrecorded, a yes waits until it is written', async () => {
    const desk = openDesk();
    const client = new HandClient('editor');
    desk.session.attach(client, desk.session.order.tip);
    desk.session.attached(client);
    desk.session.approvals.ask(permission(desk, 'a'));
    desk.session.approvals.ask(permission(desk, 'b'));
    await commits(desk);
    expect(desk.session.approvals.list()).toHaveLength(2);
    for (let n = 0; n < 20; n++) desk.log.failNext('no_space');
    // A yes for the first; then the disk is found full, and the second is cancelled.
    client.answer('1', { outcome: { outcome: 'selected', optionId: 'yes' } });
    await waitFor('the stall', () => desk.session.order.stalled);
    expect(desk.answered).toEqual([]);
    desk.session.approvals.cancelAll();
    const cancelled = { outcome: { outcome: 'cancelled' } };
    expect(desk.answered).toEqual([{ jsonrpc: '2.0', id: 'b', result: cancelled }]);
    await waitFor('room again', () => !desk.session.order.pending);
    expect(desk.answered).toHaveLength(2);
    expect(at(desk.answered[1], 'result', 'outcome', 'optionId')).toBe('yes');
  });
});
