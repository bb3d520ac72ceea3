/**
 * What is wrong is refused with an error that says what is wrong, on the connection where it happened; that connection
 * (where WIRE.md does not close it) and everyone else go on.
 */
import { describe, expect, it } from 'vitest';
import { at, isResponse, type Message, textAt } from '../support/json.ts';
import type { RawClient } from '../support/raw-client.ts';
import { testScope } from '../support/scope.ts';
import { kindsOf, type Stage, setStage } from '../support/stage.ts';

const MIB = 1 << 20;

/** Sends raw text and gives the next response, whatever its id. */
async function answerTo(client: RawClient, text: string): Promise<Message> {
  const from = client.received.length;
  client.send(text);
  return (await client.until(`an answer to ${text.slice(0, 80)}`, ({ message }) => isResponse(message), { from }))
    .message;
}

/** The whole way still works: a prompt, text and an answer, for this client and for one that watches. */
async function expectUnharmed(stage: Stage, client: RawClient = stage.client): Promise<void> {
  const watcher = await stage.join();
  await watcher.load(stage.sessionId);
  const turn = await stage.turn('still there?', client);
  const from = client.received.length;
  stage.life.say(stage.agentSessionId, 'yes');
  await turn.end();
  expect(client.agentText(stage.sessionId, from)).toBe('yes');
  await watcher.until('the text', () => watcher.agentText(stage.sessionId).endsWith('yes'));
  expect(stage.sidecar.pid).toBeGreaterThan(0);
}

const METHODS_OF_A_SESSION = [
  ...['prompt', 'load', 'resume', 'set_mode', 'set_config_option', 'close', 'delete', 'fork', 'attach', 'detach'].map(
    (name) => `session/${name}`,
  ),
  ...['history', 'events', 'approvals', 'status'].map((name) => `_sidecar/${name}`),
];

describe('from a client', () => {
  it('malformed JSON: -32700 with a null id', async () => {
    const stage = await setStage(testScope());
    for (const text of ['{"jsonrpc":"2.0",', 'hello', '{"a":01}', '\u2028']) {
      const { id, error } = await answerTo(stage.client, text);
      expect(id).toBeNull();
      expect(error?.code).toBe(-32700);
    }
    const socket = await stage.sidecar.webSocket();
    const { error } = await answerTo(socket, '{"jsonrpc":');
    expect(error?.code).toBe(-32700);
    await socket.initialize();
    await socket.load(stage.sessionId);
    await expectUnharmed(stage, socket);
  });

  it('a batch or another value that is no message: -32600', async () => {
    const stage = await setStage(testScope());
    const one = '{"jsonrpc":"2.0","id":1,"method":"session/list"}';
    for (const text of [`[${one}]`, `[${one},${one}]`, '[]', '5', 'null', '"text"', 'true']) {
      const from = stage.client.received.length;
      const { id, error } = await answerTo(stage.client, text);
      expect([id, error?.code], text).toEqual([null, -32600]);
      expect(stage.client.received.length).toBe(from + 1);
    }
    await expectUnharmed(stage);
  });

  it('wrong types in the envelope: -32600', async () => {
    const stage = await setStage(testScope());
    for (const text of [
      '{"jsonrpc":"2.0","id":1,"method":5}',
      '{"jsonrpc":"2.0","id":{},"method":"session/list"}',
      '{"jsonrpc":"2.0","id":[1],"method":"session/list"}',
      '{"jsonrpc":"2.0","id":1}',
      '{}',
    ]) {
      expect((await answerTo(stage.client, text)).error?.code, text).toBe(-32600);
    }
    await expectUnharmed(stage);
  });

  it('wrong types in the params: -32602 that names the member', async () => {
    const stage = await setStage(testScope());
    const { client, sessionId } = stage;
    for (const [method, params, member] of [
      ['session/prompt', { sessionId, prompt: 'text' }, 'prompt'],
      ['session/prompt', { prompt: [] }, 'sessionId'],
      ['session/prompt', { sessionId: 5, prompt: [] }, 'sessionId'],
      ['session/load', { cwd: '/tmp', mcpServers: [] }, 'sessionId'],
      ['session/resume', [], 'sessionId'],
      ['session/new', { mcpServers: [] }, 'cwd'],
      ['session/new', { cwd: 7, mcpServers: [] }, 'cwd'],
      ['session/list', { cursor: 'no such cursor' }, 'cursor'],
    ] as const) {
      const { error } = (await client.ask(method, params)).message;
      const what = `${method} ${JSON.stringify(params)}`;
      expect(error?.code, what).toBe(-32602);
      expect(`${error?.message} ${JSON.stringify(error?.data)}`, what).toContain(member);
    }
    await expectUnharmed(stage);
  });

  it('[ER6] an unknown session: -32002 that names it', async () => {
    const stage = await setStage(testScope());
    for (const method of METHODS_OF_A_SESSION) {
      const params = {
        sessionId: 'nobody',
        cwd: '/tmp',
        mcpServers: [],
        prompt: [{ type: 'text', text: 'x' }],
        modeId: 'm',
      };
      const { error } = (await stage.client.ask(method, params)).message;
      expect(error?.code, method).toBe(-32002);
      expect(at(error, 'data', 'sessionId'), method).toBe('nobody');
    }
    stage.client.notify('session/cancel', { sessionId: 'nobody' });
    await expectUnharmed(stage);
  });

  it('an unknown method: what the agent says', async () => {
    const stage = await setStage(testScope());
    const asked = stage.client.ask('session/no_such_method', { a: 1 });
    stage.life.fail((await stage.life.saw('session/no_such_method')).message, -32601, 'never heard of it');
    expect((await asked).message.error).toEqual({ code: -32601, message: 'never heard of it' });
    await expectUnharmed(stage);
  });

  it('[IN3] anything before initialize is refused, and initialize still works', async () => {
    const stage = await setStage(testScope());
    const early = await stage.sidecar.unix();
    for (const [method, params] of [
      ['session/new', { cwd: '/tmp', mcpServers: [] }],
      ['session/load', { sessionId: stage.sessionId, cwd: '/tmp', mcpServers: [] }],
      ['session/prompt', { sessionId: stage.sessionId, prompt: [{ type: 'text', text: 'x' }] }],
      ['_vendor/ask', {}],
    ] as const) {
      const { error } = (await early.ask(method, params)).message;
      expect(error, method).toBeDefined();
      expect(error?.message, method).toMatch(/initialize/i);
    }
    expect(stage.life.received.some(({ message }) => message.method === 'session/prompt')).toBe(false);
    await early.initialize();
    await early.load(stage.sessionId);
    await expectUnharmed(stage, early);
  });

  it('an answer to nothing, and a second answer, are ignored', async () => {
    const stage = await setStage(testScope());
    const { client, life, agentSessionId } = stage;
    client.send('{"jsonrpc":"2.0","id":"nothing","result":{}}');
    const turn = await stage.turn();
    life.send({ id: 1, method: 'fs/read_text_file', params: { sessionId: agentSessionId, path: '/tmp/x' } });
    const asked = await client.saw('fs/read_text_file');
    client.sendMessage({ id: asked.message.id, result: { content: 'first' } });
    client.sendMessage({ id: asked.message.id, result: { content: 'second' } });
    expect((await life.answerTo(1)).message.result).toEqual({ content: 'first' });
    await turn.end();
    expect(life.received.filter(({ message }) => isResponse(message)).length).toBe(1);
    await expectUnharmed(stage);
  });

  it('a line of 65 MiB on a Unix socket: one error, and the connection goes on', async () => {
    const stage = await setStage(testScope());
    const { client, sessionId } = stage;
    const from = client.received.length;
    const text = 'x'.repeat(65 * MIB);
    client.send(
      `{"jsonrpc":"2.0","id":"big","method":"session/prompt","params":{"sessionId":"${sessionId}","prompt":[{"type":"text","text":"${text}"}]}}`,
    );
    const { message } = await client.until('an error', (entry) => isResponse(entry.message), {
      from,
      timeoutMs: 30_000,
    });
    expect(at(message.error, 'data', 'kind')).toBe('message_too_large');
    expect(stage.life.received.some((entry) => entry.message.method === 'session/prompt')).toBe(false);
    await expectUnharmed(stage);
  });

  it('a frame of 65 MiB on a WebSocket: one error, and the connection goes on', async () => {
    const stage = await setStage(testScope());
    const socket = await stage.sidecar.webSocket();
    await socket.initialize();
    await socket.load(stage.sessionId);
    const { error } = await answerTo(
      socket,
      `{"jsonrpc":"2.0","id":"big","method":"_vendor/x","params":{"text":"${'x'.repeat(65 * MIB)}"}}`,
    );
    expect(at(error, 'data', 'kind')).toBe('message_too_large');
    await expectUnharmed(stage, socket);
  });

  it('a frame that is far too large closes its WebSocket, the others go on', async () => {
    const stage = await setStage(testScope(), { args: ['--max-message-bytes', '1MiB'] });
    const socket = await stage.sidecar.webSocket();
    await socket.initialize();
    socket.send(`{"jsonrpc":"2.0","id":"big","method":"_vendor/x","params":{"text":"${'x'.repeat(70 * MIB)}"}}`);
    expect((await socket.untilClosed(30_000)).code).toBe(4413);
    await expectUnharmed(stage);
  });

  it('[LN5] a binary frame on a WebSocket is refused, the others go on', async () => {
    const stage = await setStage(testScope());
    const socket = await stage.sidecar.webSocket();
    await socket.initialize();
    socket.transport.sendBytes(Buffer.from('{"jsonrpc":"2.0","id":1,"method":"session/list"}'));
    expect((await socket.untilClosed()).code).toBeGreaterThan(1000);
    await expectUnharmed(stage);
  });

  it('[LN5] a text frame is one message, whatever line ends are in it', async () => {
    const stage = await setStage(testScope());
    const socket = await stage.sidecar.webSocket();
    await socket.initialize();
    const from = socket.received.length;
    socket.send('{"jsonrpc":"2.0",\n"id":"a",\r\n"method":"session/list"}\n');
    await socket.until('the answer', ({ message }) => message.id === 'a');
    const one = '{"jsonrpc":"2.0","id":"b","method":"session/list"}';
    socket.send(`${one}\n${one}`);
    const refused = await socket.until('the refusal', ({ message }) => message.id === null);
    expect(refused.message.error?.code).toBe(-32700);
    expect(socket.received.slice(from).map(({ message }) => message.id)).toEqual(['a', null]);
    await socket.load(stage.sessionId);
    await expectUnharmed(stage, socket);
  });

  it('CRLF, a BOM, blank lines and split characters on a Unix socket are nothing special', async () => {
    const stage = await setStage(testScope());
    const client = await stage.sidecar.unix();
    client.transport.sendBytes(Buffer.from('\ufeff\r\n\n  \r\n'));
    const initialize =
      '{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":1,"clientInfo":{"name":"é😀\u2028","version":"1"}}}';
    for (const byte of Buffer.from(`${initialize}\r\n`)) client.transport.sendBytes(Buffer.from([byte]));
    const answer = await client.until('the answer', ({ message }) => message.id === 'i');
    expect(at(answer.message, 'result', 'protocolVersion')).toBe(1);
    expect(client.received.length).toBe(1);
    await client.load(stage.sessionId);
    await expectUnharmed(stage, client);
  });
});

describe('from the agent', () => {
  it('[LN4] noise on stdout is no message: the log tells of it, nobody sees it, the agent is not answered', async () => {
    const stage = await setStage(testScope());
    const { life, client, agentSessionId } = stage;
    const turn = await stage.turn();
    const before = life.received.length;
    life.write('Debugger attached.\n\n\r\n   \n{"level":"info"}\n[1,2]\n5\nnull\n"text"\n{"jsonrpc":"2.0",\n');
    life.say(agentSessionId, 'after the noise');
    await turn.end();
    expect(kindsOf(client.updates())).toEqual(['agent_message_chunk:after the noise']);
    expect(stage.sidecar.stderr).toMatch(/"level":40.*"bytes":18.*agent stdout: not a JSON-RPC message/);
    expect(life.received.length).toBe(before);
    await expectUnharmed(stage);
  });

  it('CRLF, a BOM, U+2028 and characters split between writes', async () => {
    const stage = await setStage(testScope(), {
      handlers: {
        initialize: (_request, process) => {
          process.write('\ufeff');
          return { protocolVersion: 1, agentCapabilities: {} };
        },
      },
    });
    const { life, client, sessionId, agentSessionId } = stage;
    const turn = await stage.turn();
    const line = (text: string): string =>
      `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"${agentSessionId}","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"${text}"}}}}`;
    life.write(`${line('crlf ')}\r\n`);
    life.write(`${line('line\u2028separator\u2029 ')}\n`);
    for (const byte of Buffer.from(`${line('é😀漢')}\n`)) life.write(Buffer.from([byte]));
    await turn.end();
    const text = 'crlf line\u2028separator\u2029 é😀漢';
    expect(client.agentText(sessionId)).toBe(text);
    const late = await stage.join();
    await late.load(sessionId);
    expect(late.agentText(sessionId)).toBe(text);
  });

  it('a line with broken UTF-8 harms nobody; what a WebSocket client gets is valid', async () => {
    const stage = await setStage(testScope());
    const { life, sessionId, agentSessionId } = stage;
    const socket = await stage.sidecar.webSocket();
    await socket.initialize();
    await socket.load(sessionId);
    const turn = await stage.turn();
    const [head, tail] = JSON.stringify({
      jsonrpc: '2.0',
      method: 'session/update',
      params: {
        sessionId: agentSessionId,
        update: { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: 'SPLIT' } },
      },
    }).split('SPLIT') as [string, string];
    life.write(Buffer.concat([Buffer.from(head), Buffer.from([0x61, 0xff, 0xc3]), Buffer.from(`${tail}\n`)]));
    life.update(agentSessionId, { sessionUpdate: 'plan', entries: [] });
    life.say(agentSessionId, 'fine');
    await turn.end();
    await socket.until('the text after it', () => socket.agentText(sessionId).endsWith('fine'));
    expect(socket.closed).toBeUndefined();
    await expectUnharmed(stage);
  });

  it('a notification of 65 MiB leaves a record that clients are shown; what follows it is fine', async () => {
    const stage = await setStage(testScope());
    const { life, client, sessionId, agentSessionId } = stage;
    const turn = await stage.turn();
    life.say(agentSessionId, 'before');
    life.say(agentSessionId, 'x'.repeat(65 * MIB));
    life.update(agentSessionId, { sessionUpdate: 'plan', entries: [] });
    life.say(agentSessionId, 'after');
    await turn.end();
    const shown = client.updates(sessionId);
    const largest = Math.max(...shown.map(({ text }) => text.length));
    expect(largest).toBeLessThan(MIB);
    const kinds = kindsOf(shown);
    expect(kinds[0]).toBe('agent_message_chunk:before');
    expect(kinds.at(-1)).toBe('agent_message_chunk:after');
    expect(kinds.length).toBe(4);
    const late = await stage.join();
    await late.load(sessionId);
    expect(kindsOf(late.updates(sessionId)).slice(1)).toEqual(kinds);
    await expectUnharmed(stage);
  });

  it('a response of 65 MiB fails its request, a request of 65 MiB is answered with an error', async () => {
    const stage = await setStage(testScope());
    const { life, client, agentSessionId } = stage;
    const asked = client.ask('_vendor/ask', {});
    const request = await life.saw('_vendor/ask');
    life.line(
      `{"jsonrpc":"2.0","id":${JSON.stringify(request.message.id)},"result":{"text":"${'x'.repeat(65 * MIB)}"}}`,
    );
    expect(at((await asked).message.error, 'data', 'kind')).toBe('message_too_large');
    life.line(
      `{"jsonrpc":"2.0","id":"big","method":"fs/write_text_file","params":{"sessionId":"${agentSessionId}","path":"/tmp/x","content":"${'x'.repeat(65 * MIB)}"}}`,
    );
    const refused = await life.answerTo('big');
    expect(refused.message.error?.message).toMatch(/large/i);
    expect(client.received.some(({ message }) => message.method === 'fs/write_text_file')).toBe(false);
    await expectUnharmed(stage);
  });

  it('answers to nothing and broken requests are survived', async () => {
    const stage = await setStage(testScope());
    const { life } = stage;
    life.line('{"jsonrpc":"2.0","id":12345,"result":{}}');
    life.line('{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error"}}');
    life.line('{"jsonrpc":"2.0","method":"session/update"}');
    life.line('{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":7,"update":{}}}');
    life.line('{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"agent-session-1","update":"text"}}');
    life.send({ id: 'r', method: 'session/request_permission', params: {} });
    const { message } = await life.answerTo('r');
    expect(textAt(message, 'error', 'message')).not.toBe('');
    await expectUnharmed(stage);
  });
});
