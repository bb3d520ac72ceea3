/** What is only passed on reaches the other side as it was written, byte for byte, live and in replays. */
import { describe, expect, it } from 'vitest';
import { decodeWire, encodeWire, valueAt } from '../../protocol/wire-text.ts';
import { at, isResponse, textAt, updateOf } from '../support/json.ts';
import type { RawClient } from '../support/raw-client.ts';
import { testScope } from '../support/scope.ts';
import { setStage } from '../support/stage.ts';

/** The text of the value at a path of a raw message. */
function raw(text: string, ...path: string[]): string | undefined {
  const found = valueAt(encodeWire(text), path);
  return found === undefined ? undefined : decodeWire(found);
}

/** JSON that a parser and a writer would change. */
const ODD = String.raw`{"big":9007199254740993,"neg":-9223372036854775808,"float":1.0,"exp":1e400,"minus":-0,"sci":1E+2,"esc":"\u00e9\/\ud83d\ude00\u2028","lone":"\ud800","plain":"é😀 ","":"","__proto__":{"x":1},"10":1,"9":2,"deep":[{"a":[1.50,{"b":null}]}],"spaced" : [ 1 , 2 ]}`;

/** Updates that hold the odd values at every depth, and kinds that nobody knows. */
const UPDATES: Record<string, string> = {
  'a chunk with unknown fields': `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x","odd":${ODD}},"odd":${ODD}}`,
  'a chunk with _meta': `{"sessionUpdate":"agent_message_chunk","_meta":${ODD},"content":{"type":"text","text":"x"}}`,
  'a chunk with odd text': String.raw`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"\u00e9\/\ud83d\ude00 é \u2028 \ud800"}}`,
  'a chunk with members in another order': `{"messageId":"m1","content":{"text":"x","type":"text"},"sessionUpdate":"agent_thought_chunk"}`,
  'an image chunk': `{"sessionUpdate":"agent_message_chunk","content":{"type":"image","mimeType":"image/png","data":"AA==","annotations":${ODD}}}`,
  'a tool call': `{"sessionUpdate":"tool_call","toolCallId":"t1","title":"T","status":"pending","rawInput":${ODD},"content":[{"type":"alien","odd":${ODD}}],"_meta":${ODD}}`,
  'a tool call update': `{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"completed","rawOutput":${ODD},"alien":${ODD}}`,
  'a plan': `{"sessionUpdate":"plan","entries":[{"content":"c","priority":"high","status":"pending","odd":${ODD}}]}`,
  'an unknown kind': `{"sessionUpdate":"_alien/thing","odd":${ODD}}`,
  'a kind of the future': `{"sessionUpdate":"dream_update","dream":{"depth":${ODD}}}`,
};

const LINE_TEXT = (session: string, update: string): string =>
  `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"${session}","update":${update}}}`;

function rawUpdates(client: RawClient, from = 0): (string | undefined)[] {
  return client.received
    .slice(from)
    .filter(({ message }) => updateOf(message) && updateOf(message)?.['sessionUpdate'] !== 'user_message_chunk')
    .map(({ text }) => raw(text, 'params', 'update'));
}

describe('updates', () => {
  it('[EV2] reach live, attached and later clients byte for byte, unknown kinds and fields too', async () => {
    const stage = await setStage(testScope());
    const { life, client, sessionId, agentSessionId } = stage;
    const watcher = await stage.join(true);
    await watcher.load(sessionId);
    const turn = await stage.turn();
    const expected = Object.values(UPDATES);
    for (const update of expected) life.line(LINE_TEXT(agentSessionId, update));
    await turn.end();
    expect(rawUpdates(client)).toEqual(expected);
    const late = await stage.join();
    await late.load(sessionId);
    expect(rawUpdates(late)).toEqual(expected);
    await watcher.until('the last update', ({ text }) => text.includes('dream_update'));
    expect(rawUpdates(watcher)).toEqual(expected);
    await stage.sidecar.restart();
    const after = await stage.sidecar.unix();
    await after.initialize();
    await after.load(sessionId);
    const kept = rawUpdates(after).slice(0, expected.length);
    expect(kept).toEqual(expected);
  });

  it("[EV3] keep the agent's params._meta, other params and other members of the message", async () => {
    const stage = await setStage(testScope());
    const { life, client, sessionId, agentSessionId } = stage;
    const turn = await stage.turn();
    const chunk = '{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x"}}';
    life.line(
      `{"trace":${ODD},"jsonrpc":"2.0","method":"session/update","params":{"also":${ODD},"sessionId":"${agentSessionId}","_meta":{"vendor":${ODD},"n":1.0},"update":${chunk}}}`,
    );
    await turn.end();
    const late = await stage.join();
    await late.load(sessionId);
    for (const of of [client, late]) {
      const text = of.received.find(({ text }) => text.includes('"vendor"'))?.text ?? '';
      expect(raw(text, 'params', 'update')).toBe(chunk);
      expect(raw(text, 'params', 'also')).toBe(ODD);
      expect(raw(text, 'trace')).toBe(ODD);
      expect(raw(text, 'params', '_meta', 'vendor')).toBe(ODD);
      expect(raw(text, 'params', '_meta', 'n')).toBe('1.0');
    }
  });

  it.each([
    ['params._meta', `"_meta":{"vendor":${ODD}}`, ''],
    ['other params', `"vendor":${ODD}`, ''],
    ['other members of the message', '', `"vendor":${ODD},`],
  ])('[EV3] that only repeat the last snapshot are kept for their %s', async (_what, params, message) => {
    const stage = await setStage(testScope());
    const { life, client, sessionId, agentSessionId } = stage;
    const turn = await stage.turn();
    const mode = { sessionUpdate: 'current_mode_update', currentModeId: 'ask' };
    life.update(agentSessionId, mode);
    const inner = [`"sessionId":"${agentSessionId}"`, `"update":${JSON.stringify(mode)}`, params];
    const body = inner.filter((text) => text !== '').join(',');
    life.line(`{"jsonrpc":"2.0",${message}"method":"session/update","params":{${body}}}`);
    await turn.end();
    const late = await stage.join();
    await late.load(sessionId);
    for (const of of [client, late]) {
      expect(of.received.filter(({ text }) => text.includes('current_mode_update'))).toHaveLength(2);
      expect(of.received.find(({ text }) => text.includes('"vendor"'))?.text).toContain(ODD);
    }
  });

  it("move the agent's own eventId and isReplay to _meta.sidecar.agent", async () => {
    const stage = await setStage(testScope());
    const { life, client, agentSessionId } = stage;
    const turn = await stage.turn();
    life.send({
      method: 'session/update',
      params: {
        sessionId: agentSessionId,
        _meta: { eventId: 'theirs', isReplay: true, other: 1 },
        update: { sessionUpdate: 'plan', entries: [] },
      },
    });
    await turn.end();
    const meta = at(client.updates().at(-1)?.message, 'params', '_meta');
    expect(at(meta, 'eventId')).not.toBe('theirs');
    expect(meta).toMatchObject({ other: 1, sidecar: { agent: { eventId: 'theirs', isReplay: true } } });
    expect(at(meta, 'isReplay')).toBeUndefined();
  });
});

describe('requests and their answers', () => {
  it("[TU2] [TU9] [ID5] a prompt's blocks, unknown params and _meta reach the agent, ours is taken out", async () => {
    const stage = await setStage(testScope());
    const { life, client, sessionId, agentSessionId } = stage;
    const prompt = `[{"type":"text","text":"\\u00e9 é","odd":${ODD}},{"type":"alien","odd":${ODD}}]`;
    client.send(
      `{"jsonrpc":"2.0","id":"p","method":"session/prompt","params":{"odd":${ODD},"sessionId":"${sessionId}","prompt":${prompt},"_meta":{"vendor":${ODD},"sidecar":{"promptId":"x"}}}}`,
    );
    const { text, message } = await life.saw('session/prompt');
    expect(raw(text, 'params', 'prompt')).toBe(prompt);
    expect(raw(text, 'params', 'odd')).toBe(ODD);
    expect(raw(text, 'params', '_meta', 'vendor')).toBe(ODD);
    expect(raw(text, 'params', '_meta', 'sidecar')).toBeUndefined();
    expect(raw(text, 'params', 'sessionId')).toBe(`"${agentSessionId}"`);
    const result = `{"stopReason":"end_turn","usage":${ODD},"_meta":{"vendor":${ODD}}}`;
    life.line(`{"jsonrpc":"2.0","id":${JSON.stringify(message.id)},"result":${result}}`);
    const answer = await client.until('the answer', (entry) => entry.message.id === 'p');
    const turnId = textAt(answer.message, 'result', '_meta', 'sidecar', 'turnId');
    const ours = `"sidecar":${raw(answer.text, 'result', '_meta', 'sidecar')},`;
    expect(raw(answer.text, 'result')?.replace(ours, '')).toBe(result);
    const late = await stage.join();
    await late.load(sessionId);
    const chunks = late.received.filter((entry) => updateOf(entry.message)?.['sessionUpdate'] === 'user_message_chunk');
    const blocks = chunks.map((entry) => raw(entry.text, 'params', 'update', 'content'));
    expect(`[${blocks.join(',')}]`).toBe(prompt);
    expect(chunks.map((entry) => updateOf(entry.message)?.['messageId'])).toEqual([turnId, turnId]);
  });

  it("[TU9] the agent's error for a prompt reaches the sender as it was written", async () => {
    const stage = await setStage(testScope());
    const { life, client, sessionId } = stage;
    const error = `{"code":-32000,"message":"\\u00e9","data":${ODD},"odd":${ODD}}`;
    const prompt = { sessionId, prompt: [{ type: 'text', text: 'go' }], _meta: { sidecar: { promptId: 'p' } } };
    const answer = client.ask('session/prompt', prompt);
    const { message } = await life.saw('session/prompt');
    life.line(`{"jsonrpc":"2.0","id":${JSON.stringify(message.id)},"error":${error}}`);
    expect(raw((await answer).text, 'error')).toBe(error);
    // Also when it is asked for again.
    expect(raw((await client.ask('session/prompt', prompt)).text, 'error')).toBe(error);
  });

  it('custom requests and notifications pass both ways with params, results and errors as written', async () => {
    const stage = await setStage(testScope());
    const { life, client } = stage;
    client.send(`{"jsonrpc":"2.0","id":7,"method":"_vendor/ask","params":${ODD}}`);
    const asked = await life.saw('_vendor/ask');
    expect(raw(asked.text, 'params')).toBe(ODD);
    life.line(`{"jsonrpc":"2.0","id":${JSON.stringify(asked.message.id)},"result":${ODD}}`);
    const answered = await client.until('the result', ({ message }) => isResponse(message) && message.id === 7);
    expect(raw(answered.text, 'result')).toBe(ODD);

    client.send(`{"jsonrpc":"2.0","id":8,"method":"_vendor/fail"}`);
    const failed = await life.saw('_vendor/fail');
    life.line(
      `{"jsonrpc":"2.0","id":${JSON.stringify(failed.message.id)},"error":{"code":-1,"message":"no","data":${ODD}}}`,
    );
    const error = await client.until('the error', ({ message }) => isResponse(message) && message.id === 8);
    expect(raw(error.text, 'error')).toBe(`{"code":-1,"message":"no","data":${ODD}}`);

    client.send(`{"jsonrpc":"2.0","method":"_vendor/tell","params":${ODD}}`);
    expect(raw((await life.saw('_vendor/tell')).text, 'params')).toBe(ODD);
    life.line(`{"jsonrpc":"2.0","method":"_vendor/news","params":${ODD}}`);
    expect(raw((await client.saw('_vendor/news')).text, 'params')).toBe(ODD);

    life.line(`{"jsonrpc":"2.0","id":"a1","method":"_vendor/back","params":${ODD}}`);
    const back = await client.saw('_vendor/back');
    expect(raw(back.text, 'params')).toBe(ODD);
    client.send(`{"jsonrpc":"2.0","id":${raw(back.text, 'id')},"result":${ODD}}`);
    expect(raw((await life.answerTo('a1')).text, 'result')).toBe(ODD);
  });

  it('session/new passes both ways as written', async () => {
    const stage = await setStage(testScope());
    const { life, client, agent } = stage;
    agent.handlers.delete('session/new');
    client.send(
      `{"jsonrpc":"2.0","id":"n","method":"session/new","params":{"cwd":"/tmp","mcpServers":[],"odd":${ODD}}}`,
    );
    const made = await life.saw('session/new', 1);
    expect(raw(made.text, 'params', 'odd')).toBe(ODD);
    life.line(
      `{"jsonrpc":"2.0","id":${JSON.stringify(made.message.id)},"result":{"modes":${ODD},"sessionId":"other","odd":${ODD}}}`,
    );
    const answer = await client.until('the session', ({ message }) => message.id === 'n');
    expect(raw(answer.text, 'result', 'odd')).toBe(ODD);
    expect(raw(answer.text, 'result', 'modes')).toBe(ODD);
  });
});

describe('ids', () => {
  const IDS = ['0', '1', '-1', '1.5', '1.0', '9007199254740993', '"1"', '""', '"é\\u00e9"', 'null'];

  it("a client's ids come back as written, also when many are open at once", async () => {
    const stage = await setStage(testScope());
    const { life, client } = stage;
    const from = client.received.length;
    for (const id of IDS) client.send(`{"jsonrpc":"2.0","id":${id},"method":"_vendor/echo","params":{"mine":${id}}}`);
    await life.saw('_vendor/echo', IDS.length - 1);
    const asked = life.received.filter(({ message }) => message.method === '_vendor/echo');
    for (const { text } of asked.toReversed()) {
      life.line(`{"jsonrpc":"2.0","id":${raw(text, 'id')},"result":${raw(text, 'params')}}`);
    }
    await client.until('all answers', () => client.received.length - from >= IDS.length, { from });
    const got = client.received.slice(from).map(({ text }) => [raw(text, 'id'), raw(text, 'result', 'mine')]);
    expect(got).toEqual(IDS.toReversed().map((id) => [id, id]));
  });

  it("an agent's ids come back as written", async () => {
    const stage = await setStage(testScope());
    const { life, client } = stage;
    const turn = await stage.turn();
    client.handlers.set('_vendor/echo', (params) => params);
    for (const id of IDS) life.line(`{"jsonrpc":"2.0","id":${id},"method":"_vendor/echo","params":{"mine":${id}}}`);
    const answers = await life.until('all answers', () => {
      const found = life.received.filter(({ message }) => isResponse(message));
      return found.length === IDS.length ? found : undefined;
    });
    expect(new Set(answers.map(({ text }) => raw(text, 'id')))).toEqual(new Set(IDS));
    await turn.end();
  });
});
