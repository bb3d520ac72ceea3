/** The procedure on a new transport, message by message; no socket and no clock. */
import { beforeEach, describe, expect, it } from 'vitest';
import { PHASE_TIMES } from '../../proxy/client/link-phase.ts';
import { ResumableLink } from '../../proxy/client/resumable-link.ts';
import { at, type Message } from '../support/json.ts';

const HEARTBEAT = 100;

/** A link with both of its sides in hand. */
class Bench {
  now = 0;
  readonly toLocal: Message[] = [];
  readonly toRemote: Message[] = [];
  readonly rawRemote: string[] = [];
  readonly orders: string[] = [];
  readonly states: string[] = [];
  readonly link: ResumableLink;
  #ids = 0;

  constructor() {
    this.link = new ResumableLink(
      {
        times: { ...PHASE_TIMES, heartbeatMs: HEARTBEAT, giveUpMs: 10_000 },
        clientId: 'me',
        random: () => 0,
        newId: () => `id${++this.#ids}`,
      },
      {
        local: (wire) => void this.toLocal.push(JSON.parse(wire) as Message),
        remote: (wire) => {
          this.rawRemote.push(wire);
          this.toRemote.push(JSON.parse(wire) as Message);
        },
        open: () => void this.orders.push('open'),
        cut: () => void this.orders.push('cut'),
        ping: () => false,
        state: ({ phase }) => void this.states.push(phase),
      },
      0,
    );
    this.link.start();
  }

  local(message: object): void {
    this.link.local(JSON.stringify({ jsonrpc: '2.0', ...message }), this.now);
  }

  remote(message: object): void {
    this.link.remote(JSON.stringify({ jsonrpc: '2.0', ...message }), this.now);
  }

  update(sessionId: string, eventId: string, text: string, meta: object = {}): void {
    const update = { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } };
    this.remote({ method: 'session/update', params: { sessionId, update, _meta: { eventId, ...meta } } });
  }

  /** The last request of a method that went to the sidecar. */
  asked(method: string): Message {
    const found = this.toRemote.findLast((message) => message.method === method);
    if (!found) throw new Error(`no ${method}; there are ${this.toRemote.map((m) => m.method).join(' ')}`);
    return found;
  }

  answer(method: string, result: object = {}): void {
    this.remote({ id: this.asked(method).id, result });
  }

  /** Connected, initialised, with session s1 at event 3. */
  ready(capabilities: object = {}): this {
    this.link.opened(this.now);
    this.local({ id: 1, method: 'initialize', params: { protocolVersion: 1, clientCapabilities: capabilities } });
    this.answer('initialize', { protocolVersion: 1 });
    this.local({ id: 2, method: 'session/new', params: { cwd: '/w', mcpServers: [{ name: 'x' }] } });
    this.answer('session/new', { sessionId: 's1', _meta: { sidecar: { eventId: 'log-1' } } });
    this.update('s1', 'log-3', 'a');
    return this;
  }

  /** The transport is lost, and a new one is there; nothing is answered yet. */
  reconnect(): void {
    this.link.lost(this.now, 'cut');
    this.now += 60_000;
    this.link.tick(this.now);
    this.toRemote.length = 0;
    this.toLocal.length = 0;
    this.link.opened(this.now);
  }

  resumed(sidecar: object = { mode: 'tail', eventId: 'log-3', approvals: 0 }): void {
    this.answer('initialize');
    this.answer('session/resume', { _meta: { sidecar } });
  }

  texts(): unknown[] {
    return this.toLocal.flatMap((message) => at(message, 'params', 'update', 'content', 'text') ?? []);
  }
}

let bench: Bench;
beforeEach(() => {
  bench = new Bench().ready();
});

const PROMPT = { id: 5, method: 'session/prompt', params: { sessionId: 's1', prompt: [{ type: 'text', text: 'go' }] } };
const CARD = {
  method: 'session/request_permission',
  params: { sessionId: 's1', options: [], _meta: { sidecar: { approvalId: 'ap', eventId: 'log-4' } } },
};
const YES = { outcome: { outcome: 'selected', optionId: 'yes' } };

describe('opting in', () => {
  it('[RC9] is done for a client that did not, which then sees nothing of it', () => {
    expect(at(bench.asked('initialize'), 'params', 'clientCapabilities', '_meta', 'sidecar')).toEqual({
      version: 1,
      clientId: 'me',
    });
    bench.toLocal.length = 0;
    bench.update('s1', 'log-4', 'b', { sidecar: { turnId: 't' } });
    bench.remote({ method: '_sidecar/turn', params: { sessionId: 's1', state: 'ended', eventId: 'log-5' } });
    expect(bench.toLocal.map((message) => at(message, 'params', '_meta'))).toEqual([{ eventId: 'log-4' }]);
  });

  it('keeps what a client said itself, and shows it everything', () => {
    bench = new Bench().ready({ fs: { readTextFile: true }, _meta: { sidecar: { version: 1, name: 'n' }, other: 1 } });
    expect(at(bench.asked('initialize'), 'params', 'clientCapabilities')).toEqual({
      fs: { readTextFile: true },
      _meta: { sidecar: { version: 1, name: 'n', clientId: 'me' }, other: 1 },
    });
    bench.remote({ method: '_sidecar/turn', params: { sessionId: 's1', state: 'ended', eventId: 'log-5' } });
    expect(bench.toLocal.at(-1)?.method).toBe('_sidecar/turn');
  });
});

describe('on a new transport', () => {
  it('initialises as before, resumes after the cursor, and only then sends what waits', () => {
    bench.link.lost(bench.now, 'cut');
    bench.local(PROMPT);
    bench.now += 60_000;
    bench.link.tick(bench.now);
    bench.toRemote.length = 0;
    bench.link.opened(bench.now);
    expect(bench.toRemote.map(({ method }) => method)).toEqual(['initialize']);
    expect(at(bench.asked('initialize'), 'params', 'clientCapabilities', '_meta', 'sidecar', 'clientId')).toBe('me');
    bench.answer('initialize');
    expect(bench.asked('session/resume').params).toEqual({
      sessionId: 's1',
      cwd: '/w',
      mcpServers: [{ name: 'x' }],
      _meta: { sidecar: { afterEventId: 'log-3', fallback: 'none' } },
    });
    expect(bench.toRemote.map(({ method }) => method)).not.toContain('session/prompt');
    bench.answer('session/resume', { _meta: { sidecar: { mode: 'tail', eventId: 'log-3' } } });
    expect(bench.asked('session/prompt').id).toBe(5);
    expect(bench.states).toEqual([
      'connecting',
      'greeting',
      'resuming',
      'live',
      'waiting',
      'connecting',
      'greeting',
      'resuming',
      'live',
    ]);
  });

  it('[RC2] sends a prompt again under its promptId and other requests under their requestKey, byte for byte', () => {
    bench.local(PROMPT);
    bench.local({ id: 6, method: 'session/set_mode', params: { sessionId: 's1', modeId: 'm' } });
    const before = bench.rawRemote.slice(-2);
    expect(before[0]).toContain('"promptId":"id');
    expect(before[1]).toContain('"requestKey":"id');
    bench.reconnect();
    bench.resumed();
    expect(bench.rawRemote.slice(-2)).toEqual(before);
    bench.answer('session/prompt', { stopReason: 'end_turn' });
    expect(bench.toLocal.at(-1)).toMatchObject({ id: 5, result: { stopReason: 'end_turn' } });
    bench.reconnect();
    bench.resumed();
    expect(bench.toRemote.map(({ method }) => method)).toEqual(['initialize', 'session/resume', 'session/set_mode']);
  });

  it("keeps back its own prompt's echo, also when it comes in the tail", () => {
    bench.local(PROMPT);
    const promptId = at(bench.asked('session/prompt'), 'params', '_meta', 'sidecar', 'promptId');
    bench.reconnect();
    bench.answer('initialize');
    bench.update('s1', 'log-5', 'go', { sidecar: { promptId } });
    bench.update('s1', 'log-6', 'other', { sidecar: { promptId: 'of somebody else' } });
    expect(bench.texts()).toEqual(['other']);
  });

  it.each(['before', 'after'])(
    '[RC2] a cancel %s the connection is lost cancels again what it covered, and nothing sent later',
    (when) => {
      bench.local(PROMPT);
      if (when === 'after') bench.link.lost(bench.now, 'cut');
      bench.local({ method: 'session/cancel', params: { sessionId: 's1' } });
      bench.local({ ...PROMPT, id: 'later' });
      bench.reconnect();
      bench.resumed();
      expect(bench.toRemote.slice(2).map(({ id, method, params }) => [method, id ?? params])).toEqual([
        ['session/prompt', 5],
        ['$/cancel_request', { requestId: 5 }],
        ['session/prompt', 'later'],
      ]);
    },
  );

  it("a cancel of another client's turn goes before a prompt that was sent after it", () => {
    bench.link.lost(bench.now, 'cut');
    bench.local({ method: 'session/cancel', params: { sessionId: 's1' } });
    bench.local(PROMPT);
    bench.reconnect();
    bench.resumed();
    expect(bench.toRemote.slice(2).map(({ method }) => method)).toEqual(['session/cancel', 'session/prompt']);
  });

  it('a late answer of a prompt does not move the cursor back', () => {
    bench.local(PROMPT);
    bench.reconnect();
    bench.answer('initialize');
    bench.update('s1', 'log-20~boot-5', 'of the next turn');
    bench.answer('session/resume', { _meta: { sidecar: { mode: 'tail', eventId: 'log-19' } } });
    bench.update('s1', 'log-20~boot-9', 'more');
    bench.answer('session/prompt', { stopReason: 'end_turn', _meta: { sidecar: { eventId: 'log-12' } } });
    bench.reconnect();
    bench.answer('initialize');
    expect(at(bench.asked('session/resume'), 'params', '_meta', 'sidecar', 'afterEventId')).toBe('log-20~boot-9');
  });

  it('a prompt that came while the sidecar was leaving is sent to the next one', () => {
    bench.local(PROMPT);
    const data = { kind: 'not_persisted', reason: 'stopping' };
    bench.toLocal.length = 0;
    bench.remote({ id: 5, error: { code: -32010, message: 'stopping', data } });
    expect(bench.toLocal).toEqual([]);
    bench.reconnect();
    bench.resumed();
    expect(bench.asked('session/prompt').id).toBe(5);
  });

  it('goes on with a load that was cut in the middle of its replay', () => {
    bench.local({ id: 7, method: 'session/load', params: { sessionId: 's1', cwd: '/w', mcpServers: [] } });
    bench.remote({ method: '_sidecar/replay', params: { sessionId: 's1', phase: 'begin', mode: 'full' } });
    bench.update('s1', 'log-2', 'x', { isReplay: true });
    bench.reconnect();
    bench.answer('initialize');
    const again = bench.toRemote.filter(({ method }) => method !== 'initialize');
    expect(again).toMatchObject([
      { id: 7, method: 'session/load', params: { _meta: { sidecar: { afterEventId: 'log-2' } } } },
    ]);
    bench.answer('session/load', { _meta: { sidecar: { mode: 'tail', eventId: 'log-3' } } });
    expect(bench.toLocal.at(-1)?.id).toBe(7);
  });

  it('resumes several sessions, each at its own place, a child by the log of its parent', () => {
    bench.local({ id: 8, method: 'session/load', params: { sessionId: 's2', cwd: '/v', mcpServers: [] } });
    bench.answer('session/load', { _meta: { sidecar: { mode: 'full', eventId: 'other-9' } } });
    bench.update('child', 'other-10', 'x');
    bench.reconnect();
    bench.answer('initialize');
    const resumed = bench.toRemote.filter(({ method }) => method === 'session/resume');
    expect(
      resumed.map((message) => [
        at(message, 'params', 'sessionId'),
        at(message, 'params', '_meta', 'sidecar', 'afterEventId'),
      ]),
    ).toEqual([
      ['s1', 'log-3'],
      ['s2', 'other-10'],
    ]);
  });

  it('[RC11] names a loaded child again before its parent goes on; its replay moves no cursor back', () => {
    bench.local({ id: 8, method: 'session/load', params: { sessionId: 'child', cwd: '/w', mcpServers: [] } });
    const replay = { sessionId: 'child', parent: 's1', phase: 'begin', mode: 'full' };
    bench.remote({ method: '_sidecar/replay', params: replay });
    bench.update('child', 'log-2', 'x', { isReplay: true });
    bench.reconnect();
    bench.answer('initialize');
    expect(at(bench.asked('session/resume'), 'params', '_meta', 'sidecar', 'afterEventId')).toBe('log-3');
    bench.resumed();
    expect(bench.asked('session/load')).toMatchObject({ id: 8, params: { sessionId: 'child', cwd: '/w' } });
    expect(bench.asked('session/load').params).not.toHaveProperty('_meta');
    bench.update('child', 'log-2', 'x', { isReplay: true });
    bench.answer('session/load', { _meta: { sidecar: { mode: 'full', parent: 's1', eventId: 'log-3' } } });
    bench.update('child', 'log-4', 'y');
    bench.reconnect();
    bench.answer('initialize');
    const resumed = bench.toRemote.filter(({ method }) => method === 'session/resume');
    expect(
      resumed.map(({ params }) => [params?.['sessionId'], at(params, '_meta', 'sidecar', 'afterEventId')]),
    ).toEqual([
      ['child', undefined],
      ['s1', 'log-4'],
    ]);
    bench.update('s1', 'log-9', 'behind a hole');
    bench.remote({
      id: resumed[0]?.id,
      result: { _meta: { sidecar: { mode: 'none', parent: 's1', eventId: 'log-9' } } },
    });
    bench.remote({ method: '_sidecar/replay', params: { sessionId: 's1', phase: 'begin', mode: 'tail' } });
    bench.update('child', 'log-5', 'z');
    expect(bench.texts()).toEqual(['z']);
  });

  it('forgets a session that was closed', () => {
    bench.local({ id: 9, method: 'session/close', params: { sessionId: 's1' } });
    bench.answer('session/close');
    bench.reconnect();
    bench.answer('initialize');
    expect(bench.toRemote.map(({ method }) => method)).toEqual(['initialize']);
    expect(bench.link.phase.name).toBe('live');
  });
});

describe('a cursor that cannot be used', () => {
  it('[RC5] diverged: says in one line how much was not recorded, and goes on in front of it', () => {
    bench.update('s1', 'log-4~boot-3', 'abc');
    bench.update('s1', 'log-4~boot-7', 'defg');
    bench.reconnect();
    bench.resumed({ mode: 'none', reason: 'diverged', eventId: 'log-6', approvals: 0 });
    expect(bench.texts()).toEqual([expect.stringContaining('its last 7 characters')]);
    expect(at(bench.asked('session/resume'), 'params', '_meta', 'sidecar')).toEqual({
      afterEventId: 'log-3',
      fallback: 'none',
    });
    // The connection stands behind the hole: nothing is shown until the replay begins.
    bench.update('s1', 'log-7', 'too early');
    bench.remote({ method: '_sidecar/replay', params: { sessionId: 's1', phase: 'begin', mode: 'tail' } });
    bench.update('s1', 'log-4', 'closer');
    bench.answer('session/resume', { _meta: { sidecar: { mode: 'tail', eventId: 'log-7' } } });
    expect(bench.texts().slice(1)).toEqual(['closer']);
    expect(bench.link.phase.name).toBe('live');
  });

  it.each(['foreign', 'ahead', 'expired'])('[RC6] %s: says so and shows everything from the beginning', (reason) => {
    bench.reconnect();
    bench.resumed({ mode: 'none', reason, eventId: 'new-6', approvals: 0 });
    expect(bench.texts()).toEqual([expect.stringContaining('the whole session from its beginning')]);
    expect(bench.asked('session/load').params).toEqual({ sessionId: 's1', cwd: '/w', mcpServers: [{ name: 'x' }] });
    bench.remote({ method: '_sidecar/replay', params: { sessionId: 's1', phase: 'begin', mode: 'full' } });
    bench.update('s1', 'new-1', 'first', { isReplay: true });
    bench.answer('session/load', { _meta: { sidecar: { mode: 'full', eventId: 'new-6' } } });
    expect(bench.texts()).toContain('first');
    bench.reconnect();
    bench.answer('initialize');
    expect(at(bench.asked('session/resume'), 'params', '_meta', 'sidecar', 'afterEventId')).toBe('new-6');
  });

  it.each([
    ['foreign', false],
    ['ahead', true],
    ['expired', true],
  ])('[RC6] %s: a prompt that had gone out goes again only if the log there is has it', (reason, recorded) => {
    bench.local(PROMPT);
    const promptId = at(bench.asked('session/prompt'), 'params', '_meta', 'sidecar', 'promptId');
    bench.reconnect();
    bench.local({ ...PROMPT, id: 'later' });
    bench.resumed({ mode: 'none', reason, eventId: 'new-6', approvals: 0 });
    bench.remote({ method: '_sidecar/replay', params: { sessionId: 's1', phase: 'begin', mode: 'full' } });
    if (recorded) bench.update('s1', 'new-1', 'go', { isReplay: true, sidecar: { promptId } });
    bench.answer('session/load', { _meta: { sidecar: { mode: 'full', eventId: 'new-6' } } });
    const sent = bench.toRemote.filter(({ method }) => method === 'session/prompt').map(({ id }) => id);
    expect(sent).toEqual(recorded ? [5, 'later'] : ['later']);
    const failed = bench.toLocal.filter(({ error }) => error !== undefined);
    expect(failed.map(({ id, error }) => [id, at(error, 'data', 'code')])).toEqual(
      recorded ? [] : [[5, 'PROMPT_OUTCOME_UNKNOWN']],
    );
  });

  it('[RC8] an unknown session: one line, and its requests get the error', () => {
    bench.local(PROMPT);
    bench.reconnect();
    bench.answer('initialize');
    bench.remote({ id: bench.asked('session/resume').id, error: { code: -32002, message: 'No such session.' } });
    expect(bench.texts()).toEqual([expect.stringContaining('cannot be continued: No such session.')]);
    bench.remote({ id: bench.asked('session/prompt').id, error: { code: -32002, message: 'No such session.' } });
    expect(bench.toLocal.at(-1)).toMatchObject({ id: 5, error: { code: -32002 } });
  });
});

describe('requests of the agent', () => {
  it('[RC3] an approval that is asked again is the card that is open; its answer goes to where it was asked last', () => {
    bench.remote({ id: 1, ...CARD });
    const card = bench.toLocal.at(-1);
    bench.reconnect();
    bench.resumed();
    bench.remote({ id: 77, ...CARD });
    expect(bench.toLocal).toEqual([]);
    bench.local({ id: card?.id, result: YES });
    expect(bench.toRemote.at(-1)).toEqual({ jsonrpc: '2.0', id: 77, result: YES });
  });

  it('[RC3] an answer that was lost is given again, without asking anybody', () => {
    bench.remote({ id: 1, ...CARD });
    bench.local({ id: bench.toLocal.at(-1)?.id, result: YES });
    bench.reconnect();
    bench.resumed();
    bench.remote({ id: 4, ...CARD });
    expect(bench.toLocal).toEqual([]);
    expect(bench.toRemote.at(-1)).toEqual({ jsonrpc: '2.0', id: 4, result: YES });
  });

  it('the same approval asked again on the same connection, or reopened later, is asked again', () => {
    bench.remote({ id: 1, ...CARD });
    bench.local({
      id: bench.toLocal.at(-1)?.id,
      result: { outcome: { outcome: 'selected', optionId: 'not offered' } },
    });
    bench.remote({ id: 2, ...CARD });
    bench.local({ id: bench.toLocal.at(-1)?.id, result: YES });
    expect(bench.toRemote.at(-1)).toMatchObject({ id: 2, result: YES });
    bench.reconnect();
    bench.resumed();
    const reopened = { ...CARD.params, _meta: { sidecar: { approvalId: 'ap', eventId: 'log-9', reopened: true } } };
    bench.remote({ id: 1, ...CARD, params: reopened });
    expect(bench.toLocal.map(({ method }) => method)).toEqual(['session/request_permission']);
  });

  it('a card that was decided while we were away is taken back', () => {
    bench.remote({ id: 1, ...CARD });
    const card = bench.toLocal.at(-1);
    bench.reconnect();
    bench.answer('initialize');
    bench.remote({
      method: '_sidecar/approval',
      params: { sessionId: 's1', approvalId: 'ap', state: 'resolved', eventId: 'log-5' },
    });
    expect(bench.toLocal).toEqual([{ jsonrpc: '2.0', method: '$/cancel_request', params: { requestId: card?.id } }]);
  });

  it('a card that is not asked again within 5 s is taken back', () => {
    bench.remote({ id: 1, ...CARD });
    bench.reconnect();
    bench.resumed();
    expect(bench.link.wakeAt()).toBeLessThanOrEqual(bench.now + 5000);
    bench.now += 5000;
    bench.link.tick(bench.now);
    expect(bench.toLocal.map(({ method }) => method)).toEqual(['$/cancel_request']);
  });

  it('[RC4] one with a requestKey is run once', () => {
    const read = {
      method: 'fs/read_text_file',
      params: { sessionId: 's1', path: '/f', _meta: { sidecar: { requestKey: 'k' } } },
    };
    bench.remote({ id: 1, ...read });
    const request = bench.toLocal.at(-1);
    bench.reconnect();
    bench.local({ id: request?.id, result: { content: 'c' } });
    bench.resumed();
    bench.remote({ id: 1, ...read });
    expect(bench.toLocal).toEqual([]);
    expect(bench.toRemote.at(-1)).toEqual({ jsonrpc: '2.0', id: 1, result: { content: 'c' } });
  });

  it('[RC4] one without a key cannot come again and is taken back at once', () => {
    bench.remote({ id: 1, method: 'vendor/ask', params: { sessionId: 's1' } });
    bench.toLocal.length = 0;
    bench.link.lost(bench.now, 'cut');
    expect(bench.toLocal.map(({ method }) => method)).toEqual(['$/cancel_request']);
  });

  it('a withdrawal reaches the local side under its id', () => {
    bench.remote({ id: 41, ...CARD });
    const card = bench.toLocal.at(-1);
    bench.remote({ method: '$/cancel_request', params: { requestId: 41 } });
    expect(bench.toLocal.at(-1)).toMatchObject({ method: '$/cancel_request', params: { requestId: card?.id } });
  });
});

describe('the end', () => {
  it('[RC8] a refusal answers everything, now and later, with what was refused', () => {
    bench = new Bench();
    bench.local({ id: 1, method: 'initialize', params: { protocolVersion: 1 } });
    bench.link.refused('ws://x answered 401 Unauthorized');
    bench.local({ id: 2, method: 'session/list', params: {} });
    expect(bench.toLocal.map(({ id, error }) => [id, at(error, 'data', 'kind')])).toEqual([
      [1, 'refused'],
      [2, 'refused'],
    ]);
    expect(bench.toLocal[0]?.error?.message).toContain('401');
  });

  it('a server that was never there is given up; one that was there is not', () => {
    bench = new Bench();
    bench.local({ id: 1, method: 'initialize', params: { protocolVersion: 1 } });
    bench.link.lost(10_000, 'ECONNREFUSED');
    expect(bench.toLocal).toMatchObject([{ id: 1, error: { data: { kind: 'unreachable' } } }]);
    bench = new Bench().ready();
    bench.link.lost(0, 'cut');
    bench.link.tick(60_000_000);
    bench.link.lost(60_000_001, 'ECONNREFUSED');
    expect(bench.link.phase.name).toBe('waiting');
  });

  it('a message that is too large for the sidecar is answered so, and not sent again', () => {
    bench.local({ ...PROMPT, params: { ...PROMPT.params, prompt: [{ type: 'text', text: 'x'.repeat(5000) }] } });
    bench.link.lost(bench.now, 'too large', 4413);
    expect(bench.toLocal.at(-1)).toMatchObject({ id: 5, error: { data: { kind: 'message_too_large' } } });
  });

  it('[RC7] asks a silent peer for a sign of life that any sidecar answers, and cuts it off', () => {
    bench.now = HEARTBEAT;
    bench.link.tick(bench.now);
    expect(bench.toRemote.at(-1)?.method).toBe('_sidecar/ping');
    bench.now = 2 * HEARTBEAT;
    bench.link.tick(bench.now);
    expect(bench.orders).toEqual(['open', 'cut']);
  });

  it('[RC10] what waits is bounded: the local side is told to wait', () => {
    bench.link.lost(bench.now, 'cut');
    expect(bench.link.congested).toBe(false);
    const text = 'x'.repeat(1024 * 1024);
    for (let i = 0; i < 17; i++) bench.local({ method: 'vendor/note', params: { text } });
    expect(bench.link.congested).toBe(true);
  });
});

it('numbers, escapes and unknown members pass as they were written', () => {
  const raw =
    '{"jsonrpc":"2.0","id":9007199254740993,"method":"vendor/x","params":{"n":1.0,"s":"\\u00e9\\/","_meta":{"k":1e3}}}';
  bench.link.local(raw, 0);
  expect(bench.rawRemote.at(-1)).toMatch(
    /^\{"jsonrpc":"2.0","id":9007199254740993,"method":"vendor\/x","params":\{.*"n":1\.0,"s":"\\u00e9\\\/"/,
  );
  expect(bench.rawRemote.at(-1)).toContain('"k":1e3');
});
