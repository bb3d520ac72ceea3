/** Requests of the agent that one client answers: which one gets them, and what the agent gets back. */
import { expect, it } from 'vitest';
import { decodeWire, encodeWire, valueAt } from '../../protocol/wire-text.ts';
import { at, type Received } from '../support/json.ts';
import type { InitializeOptions, RawClient } from '../support/raw-client.ts';
import { answerAt, askPermission, card, openRoom, type Room, settled, YES } from '../support/room.ts';
import { type Scope, testScope } from '../support/scope.ts';

const READS: InitializeOptions = { capabilities: { fs: { readTextFile: true }, elicitation: { form: {} } } };

/** Clients on one session, each by its capabilities; the last one was active last. */
async function onOneSession(
  scope: Scope,
  options: readonly InitializeOptions[],
): Promise<{ room: Room; sessionId: string; clients: RawClient[] }> {
  const room = await openRoom(scope);
  const clients: RawClient[] = [];
  let sessionId = '';
  for (const each of options) {
    const client = await room.enter(each);
    if (clients.length === 0) sessionId = await client.newSession();
    else await client.load(sessionId);
    clients.push(client);
  }
  return { room, sessionId, clients };
}

it('[RQ1] goes to the driver if it can, else to who was active last of those that can, else nowhere', async () => {
  const { room, sessionId, clients } = await onOneSession(testScope(), [
    { capabilities: {}, sidecar: true },
    READS,
    READS,
    READS,
  ]);
  const [first, second, third, fourth] = clients as [RawClient, RawClient, RawClient, RawClient];
  for (const [n, client] of clients.entries()) {
    for (const method of ['fs/read_text_file', '_vendor/ask']) client.handlers.set(method, () => ({ content: `${n}` }));
  }
  let asked = 0;
  const answeredBy = async (method = 'fs/read_text_file'): Promise<unknown> => {
    const id = `ask-${asked++}`;
    room.life().send({ id, method, params: { sessionId, path: '/x' } });
    const { result, error } = await answerAt(room.life(), id);
    return at(result, 'content') ?? error?.code;
  };
  const shown = (): number =>
    clients.flatMap(({ received }) => received).filter(({ message }) => /^(fs|_vendor)/.test(message.method ?? ''))
      .length;
  expect(await answeredBy()).toBe('3');
  await settled(third);
  expect(await answeredBy()).toBe('2');
  const driven = second.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'go' }] });
  const { message } = await room.life().saw('session/prompt');
  await settled(fourth);
  expect(await answeredBy()).toBe('1');
  expect(await answeredBy('_vendor/ask')).toBe('1');
  room.life().reply(message, { stopReason: 'end_turn' });
  await driven;
  // A driver that cannot.
  const other = first.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'go' }] });
  const again = await room.life().saw('session/prompt', 1);
  await settled(third);
  expect(await answeredBy()).toBe('2');
  expect(await answeredBy('_vendor/ask')).toBe('0');
  // Each went to exactly one.
  expect(shown()).toBe(asked);
  const from = first.received.length;
  for (const client of [second, third, fourth]) client.cut();
  const alone = ({ message: told }: Received): boolean =>
    told.method === '_sidecar/clients' && at(told, 'params', 'clients', 'length') === 1;
  await first.until('them to be gone', alone, { from });
  expect(await answeredBy()).toBe(-32601);
  room.life().reply(again.message, { stopReason: 'end_turn' });
  await other;
});

const ODD = String.raw`{"big":9007199254740993,"float":1.0,"esc":"\u00e9\/","lone":"\ud800","spaced" : [ 1 ]}`;

it.each([
  [
    'session/request_permission',
    String.raw`{"outcome":{"optionId":"yes","outcome":"selected","_meta":${ODD}},"odd":${ODD}}`,
  ],
  ['elicitation/create', String.raw`{"action":"accept","content":{"name":"\u00e9"},"odd":${ODD}}`],
])('[RQ3] %s reaches a client that can, and its answer reaches the agent as it was written', async (method, answer) => {
  const scope = testScope();
  const { room, sessionId, clients } = await onOneSession(scope, [{ capabilities: {} }, READS]);
  const elicits = method === 'elicitation/create';
  const id = elicits ? 'form' : askPermission(room.life(), sessionId, {}, [YES]);
  const requestedSchema = { type: 'object', properties: { name: { type: 'string' } } };
  if (elicits) room.life().send({ id, method, params: { sessionId, mode: 'form', message: 'Name?', requestedSchema } });
  const client = clients[1] as RawClient;
  const asked = await card(client, sessionId);
  expect(asked.message.method).toBe(method);
  client.send(`{"jsonrpc":"2.0","id":${JSON.stringify(asked.message.id)},"result":${answer}}`);
  const { text } = await room.life().answerTo(id);
  expect(decodeWire(valueAt(encodeWire(text), ['result']) ?? '')).toBe(answer);
  await settled(clients[0] as RawClient);
  expect(clients[0]?.received.some(({ message }) => message.method === method)).toBe(!elicits);
});
