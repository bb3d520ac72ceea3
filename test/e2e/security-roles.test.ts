/** What roles, limited tokens and ids of others open: nothing more than they say. */
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { METHODS } from '../../protocol/methods.ts';
import { at, textAt } from '../support/json.ts';
import { RawClient } from '../support/raw-client.ts';
import { testScope } from '../support/scope.ts';
import { type AgentLife, ScriptedAgent } from '../support/scripted-agent.ts';
import { runCommand, Sidecar } from '../support/sidecar.ts';
import { setStage } from '../support/stage.ts';
import { tempDir } from '../support/temp-dir.ts';
import { storeAtRest } from '../support/store-at-rest.ts';

const OWNER = 'owner-token-0123456789abcdef';
const WATCHER = 'watcher-token-0123456789abcdef';
const GUEST = 'guest-token-0123456789abcdef';

interface House {
  readonly sidecar: Sidecar;
  readonly life: AgentLife;
  /** A controller for everything, on the Unix socket. */
  readonly owner: RawClient;
  /** Its session. */
  readonly secret: string;
  /** The session that the guest's token names. */
  readonly shared: string;
  readonly as: (token: string, initialize?: object) => Promise<RawClient>;
  readonly turn: (sessionId: string, agentSessionId: string, text: string) => Promise<void>;
}

async function openHouse(): Promise<House> {
  const scope = testScope();
  const agent = await ScriptedAgent.listen(scope);
  agent.handlers.set('initialize', () => ({
    protocolVersion: 1,
    agentCapabilities: { loadSession: true, sessionCapabilities: { list: {} } },
  }));
  const listed = [{ sessionId: 'only-the-agent-knows', cwd: '/tmp' }];
  agent.handlers.set('auth/status', () => ({}));
  agent.handlers.set('session/list', () => ({ sessions: listed }));
  const tokens = join(tempDir(scope), 'tokens');
  const lines = [
    `${OWNER} controller owner`,
    `${WATCHER} observer screen`,
    `${GUEST} controller guest session=agent-session-2`,
  ];
  writeFileSync(tokens, `${lines.join('\n')}\n`, { mode: 0o600 });
  const sidecar = await Sidecar.start(scope, { agent: agent.command, args: ['--token-file', tokens] });
  const owner = await sidecar.unix();
  await owner.initialize({ sidecar: true });
  const secret = await owner.newSession();
  const shared = await owner.newSession();
  const life = await agent.life();
  let prompts = 0;
  const turn = async (sessionId: string, agentSessionId: string, text: string): Promise<void> => {
    const answer = owner.prompt(sessionId, `prompt ${text}`);
    const { message } = await life.saw('session/prompt', prompts++);
    life.say(agentSessionId, text);
    life.reply(message, { stopReason: 'end_turn' });
    await answer;
  };
  const as = async (token: string, sidecarMeta: object = {}): Promise<RawClient> => {
    const client = await sidecar.webSocket(scope, { headers: { authorization: `Bearer ${token}` } });
    await client.initialize({ sidecar: sidecarMeta });
    return client;
  };
  return { sidecar, life, owner, secret, shared, as, turn };
}

const said = (client: RawClient): string => client.received.map(({ text }) => text).join('\n');

describe('sessions of others', () => {
  it('[CU10] T15: the cursor of another session opens nothing of it', async () => {
    const { owner, secret, shared, turn, as } = await openHouse();
    await turn(secret, 'agent-session-1', 'the secret of one');
    await turn(shared, 'agent-session-2', 'what two may know');
    const foreign = owner.cursors.get(secret) ?? '';
    expect(foreign).not.toBe('');
    const client = await as(OWNER);
    for (const method of ['session/load', 'session/resume']) {
      const meta = { _meta: { sidecar: { afterEventId: foreign } } };
      const result = await client.request(method, { sessionId: shared, cwd: '/tmp', mcpServers: [], ...meta });
      expect(at(result, '_meta', 'sidecar', 'reason'), method).toBe('foreign');
    }
    await client.ask('_sidecar/events', { sessionId: shared, after: foreign });
    await client.ask('_sidecar/history', { sessionId: shared, before: foreign });
    expect(said(client)).toContain('what two may know');
    expect(said(client)).not.toContain('the secret of one');
  });

  it('T16: an id is never a file name: paths, nulls and long names as ids open and make nothing', async () => {
    const stage = await setStage(testScope());
    const { client, sidecar } = stage;
    await storeAtRest(sidecar.store);
    const before = new Set(readdirSync(sidecar.store, { recursive: true, encoding: 'utf8' }));
    const ids = [
      '../../../../etc/passwd',
      '/etc/passwd',
      '..',
      '.',
      'a/b',
      'data.mdb',
      'x\0y',
      '\u202e',
      'x'.repeat(100_000),
      '%2e%2e',
      '',
      'CON',
    ];
    for (const sessionId of ids) {
      for (const method of ['session/load', 'session/resume', 'session/close', 'session/delete', '_sidecar/history']) {
        const { error } = (await client.ask(method, { sessionId, cwd: '/tmp', mcpServers: [] })).message;
        expect(error?.code, `${method} ${sessionId.slice(0, 30)}`).toBe(-32002);
      }
      if (sessionId.includes('\0') || sessionId.length > 1000) continue;
      expect((await runCommand(['events', '--store', sidecar.store, '--', sessionId])).code).not.toBe(0);
    }
    expect(new Set(readdirSync(sidecar.store, { recursive: true, encoding: 'utf8' }))).toEqual(before);
    expect(existsSync(join(sidecar.store, '..', 'passwd'))).toBe(false);
    await (await stage.turn()).end();
  });

  it('[AC5] T17: a token limited to a session sees and touches no other, by any method or notification', async () => {
    const { life, owner, secret, shared, turn, as } = await openHouse();
    await turn(secret, 'agent-session-1', 'the secret of one');
    await turn(shared, 'agent-session-2', 'what two may know');
    const guest = await as(GUEST);
    const list = (await guest.request('session/list')) as { sessions: { sessionId: string }[] };
    expect(list.sessions.map(({ sessionId }) => sessionId)).toEqual([shared]);
    await guest.load(shared);
    expect(guest.agentText(shared)).toContain('what two may know');
    const before = life.received.length;
    const extra = {
      cwd: '/tmp',
      mcpServers: [],
      prompt: [{ type: 'text', text: 'x' }],
      modeId: 'm',
      configId: 'c',
      value: 'v',
    };
    for (const [method, spec] of Object.entries(METHODS.client)) {
      if (method === 'initialize' || method === '_sidecar/ping') continue;
      for (const sessionId of [secret, 'agent-session-1', 'only-the-agent-knows', undefined, null, 7, [shared]]) {
        const params = { ...extra, sessionId, requestId: 1, target: secret };
        if (spec.kind === 'notification') guest.notify(method, params);
        else {
          const { message } = await guest.ask(method, params);
          if (sessionId === undefined && ['session/list', '_sidecar/approvals'].includes(method)) continue;
          expect(message.error, `${method} ${JSON.stringify(sessionId)}`).toBeDefined();
        }
      }
    }
    for (const method of ['_vendor/anything', 'session/fork', 'session/new']) {
      for (const sessionId of [secret, undefined])
        expect((await guest.ask(method, { sessionId })).message.error).toBeDefined();
    }
    expect((await guest.ask('session/fork', { sessionId: shared })).message.error).toBeDefined();
    // Two ids in one message: the agent might read the other one.
    guest.send(
      `{"jsonrpc":"2.0","id":"two","method":"_vendor/x","params":{"sessionId":"${secret}","sessionId":"${shared}"}}`,
    );
    const two = await guest.until('its answer', ({ message }) => message.id === 'two');
    expect(two.message.error?.code).toBe(-32602);
    // What the agent says to everybody, and of the other session.
    life.send({ method: '_vendor/broadcast', params: { text: 'the secret of all' } });
    life.send({ id: 'outside', method: '_vendor/ask_someone', params: { text: 'the secret of all' } });
    await owner.saw('_vendor/ask_someone');
    await turn(secret, 'agent-session-1', 'the secret of one again');
    const own = guest.ask('session/prompt', { sessionId: shared, prompt: [{ type: 'text', text: 'mine' }] });
    const mine = await life.until('its prompt', () => life.received.find(({ text }) => text.includes('"mine"')));
    life.reply(mine.message, { stopReason: 'end_turn' });
    expect((await own).message.error).toBeUndefined();
    expect(said(guest)).not.toContain('the secret');
    // An answer to an id it guesses is nobody's.
    guest.sendMessage({ id: 1, result: { outcome: { outcome: 'selected', optionId: 'allow' } } });
    const reached = life.received.slice(before).filter(({ message }) => message.method !== undefined);
    expect(reached.map(({ message }) => message.method)).toEqual(['session/prompt', 'session/prompt']);
  });
});

describe('roles', () => {
  it('T18: an observer that sends every method there is changes nothing and nothing of it reaches the agent', async () => {
    const { life, owner, shared, turn, as, sidecar } = await openHouse();
    await turn(shared, 'agent-session-2', 'hello');
    const watcher = await as(WATCHER);
    await watcher.load(shared, undefined, { mcpServers: [{ name: 'evil', command: '/bin/sh', args: [], env: [] }] });
    const eventsOf = async (): Promise<string> =>
      (await runCommand(['events', shared, '--store', sidecar.store, '--json'])).stdout;
    const before = [await eventsOf(), life.received.length] as const;
    const open = owner.ask('session/prompt', { sessionId: shared, prompt: [{ type: 'text', text: 'long' }] });
    const running = await life.saw('session/prompt', 1);
    life.send({
      id: 'card',
      method: 'session/request_permission',
      params: {
        sessionId: 'agent-session-2',
        toolCall: { toolCallId: 't', title: 'rm' },
        options: [{ optionId: 'allow', kind: 'allow_once', name: 'Allow' }],
      },
    });
    const card = await owner.saw('session/request_permission');
    const reads: string[] = [];
    for (const [method, { role, kind }] of Object.entries(METHODS.client)) {
      if (method === 'initialize') continue;
      const params = {
        sessionId: shared,
        cwd: '/tmp',
        mcpServers: [],
        prompt: [{ type: 'text', text: 'x' }],
        modeId: 'm',
        requestId: 1,
      };
      if (kind === 'notification') watcher.notify(method, params);
      else {
        const { message } = await watcher.ask(method, params);
        if (role === 'observer') reads.push(method);
        else if (!message.error) expect(message, method).toHaveProperty('error');
        else expect([-32010, -32601], method).toContain(message.error.code);
      }
    }
    watcher.notify('_vendor/do', { sessionId: shared });
    expect((await watcher.ask('_vendor/do', { sessionId: shared })).message.error?.code).toBe(-32010);
    for (let id = 0; id < 20; id++)
      watcher.sendMessage({ id, result: { outcome: { outcome: 'selected', optionId: 'allow' } } });
    await watcher.request('_sidecar/ping');
    expect(reads).toContain('session/load');
    expect(watcher.received.some(({ message }) => message.method === 'session/request_permission')).toBe(false);
    // The agent saw the prompt of the owner and what may be read from it, no more; the card still waits.
    const methods = life.received.slice(before[1]).map(({ message }) => message.method);
    expect(methods.filter((method) => method !== 'session/list' && method !== 'auth/status')).toEqual([
      'session/prompt',
    ]);
    owner.sendMessage({ id: card.message.id, result: { outcome: { outcome: 'selected', optionId: 'allow' } } });
    const outcome = await life.answerTo('card');
    expect(at(outcome.message, 'result', 'outcome', 'optionId')).toBe('allow');
    life.reply(running.message, { stopReason: 'end_turn' });
    await open;
    const after = await eventsOf();
    expect(after.startsWith(before[0])).toBe(true);
    const types = after
      .slice(before[0].length)
      .trim()
      .split('\n')
      .map((line) => textAt(JSON.parse(line), 'type'));
    const mine = ['turn_queued', 'turn_started', 'update', 'approval_requested', 'approval_resolved', 'turn_ended'];
    expect(types.filter((type) => !mine.includes(type))).toEqual([]);
    expect(after).not.toContain('evil');
  });

  it('[AC4] T19: a client can ask for less than its token, never for more, and keeps its name', async () => {
    const { shared, owner, as } = await openHouse();
    const lifted = await as(WATCHER, { role: 'controller', name: 'owner' });
    expect((await lifted.ask('session/prompt', { sessionId: shared, prompt: [] })).message.error?.code).toBe(-32010);
    const lowered = await as(OWNER, { role: 'observer' });
    expect((await lowered.ask('session/prompt', { sessionId: shared, prompt: [] })).message.error?.code).toBe(-32010);
    await lowered.initialize({ sidecar: { role: 'controller' } });
    expect((await lowered.ask('session/prompt', { sessionId: shared, prompt: [] })).message.error?.code).toBe(-32010);
    const attached = await lifted.ask('session/attach', { sessionId: shared, role: 'controller' });
    expect(attached.message.error?.code).toBe(-32010);
    await lifted.load(shared);
    await owner.load(shared);
    const status = JSON.stringify(await owner.request('_sidecar/status', { sessionId: shared }));
    expect(status).toContain('screen');
  });

  it('T20: the clientId of one token is not that of another: nobody is replaced, nothing of it is answered again', async () => {
    const { as, shared } = await openHouse();
    const first = await as(OWNER, { clientId: 'laptop' });
    const params = { cwd: '/tmp', mcpServers: [], _meta: { sidecar: { requestKey: 'key' } } };
    const made = textAt(await first.request('session/new', params), 'sessionId');
    const thief = await as(GUEST, { clientId: 'laptop' });
    expect((await thief.ask('session/new', params)).message.error).toBeDefined();
    await thief.load(shared);
    expect(said(thief)).not.toContain(made);
    expect(first.closed).toBeUndefined();
    const again = await as(OWNER, { clientId: 'laptop' });
    expect((await first.untilClosed()).code).toBe(4409);
    expect(textAt(await again.request('session/new', params), 'sessionId')).toBe(made);
  });
});
