import { describe, expect, it } from 'vitest';
import {
  errorText,
  notificationText,
  paramsOf,
  parseMessage,
  requestText,
  responseText,
  textOf,
  withId,
} from '../../protocol/json-rpc.ts';

const IDS = ['0', '-1', '1.0', '1e400', '9007199254740993', '"1"', '"\\u00e9\\/"', 'null', '""'];

describe('JSON-RPC messages', () => {
  it.each(IDS)('[ID1] the id %s is kept as it was written and can be replaced alone', (id) => {
    const wire = `{ "extra":1.0,"id" : ${id} , "method":"m","params":{"n":1e400} }`;
    const request = parseMessage(wire);
    if (request.kind !== 'request') throw new Error(request.kind);
    expect([request.id, request.method]).toEqual([id, 'm']);
    expect(withId(request, '42')).toBe(wire.replace(` ${id} `, ' 42 '));
    expect(textOf(request, request.params as NonNullable<typeof request.params>)).toBe('{"n":1e400}');
    const response = parseMessage(`{"jsonrpc":"2.0","result":null,"id":${id}}`);
    if (response.kind !== 'response') throw new Error(response.kind);
    expect(response.id).toBe(id);
    expect(withId(response, '"x"')).toBe('{"jsonrpc":"2.0","result":null,"id":"x"}');
  });

  it('are told apart by their members', () => {
    expect(parseMessage('{"method":"m"}')).toMatchObject({ kind: 'notification', method: 'm', params: undefined });
    expect(parseMessage('{"method":"m","id":null}')).toMatchObject({ kind: 'request', id: 'null' });
    expect(parseMessage('{"id":1,"error":{"code":1}}')).toMatchObject({ kind: 'response', result: undefined });
    expect(parseMessage('{"method":"m","id":1,"id":2}')).toMatchObject({ kind: 'request', id: '2' });
    const bare = parseMessage('{"method":"m","params":null}');
    expect(bare.kind === 'notification' && paramsOf(bare)).toEqual({});
  });

  it.each([
    ['{', -32700, 'null'],
    ['', -32700, 'null'],
    ['[]', -32600, 'null'],
    ['[{"method":"m","id":1}]', -32600, 'null'],
    ['7', -32600, 'null'],
    ['null', -32600, 'null'],
    ['{}', -32600, 'null'],
    ['{"id":{},"method":"m"}', -32600, 'null'],
    ['{"id":true,"method":"m"}', -32600, 'null'],
    ['{"id":5,"method":7}', -32600, '5'],
    ['{"id":5,"method":"m","params":"p"}', -32600, '5'],
    ['{"id":5,"method":"m","jsonrpc":"1.0"}', -32600, '5'],
    ['{"result":1}', -32600, 'null'],
  ])('[ER5] %s is answered with %d and the id %s', (wire, code, id) => {
    const message = parseMessage(wire);
    expect(message).toMatchObject({ kind: 'invalid', code, id });
    if (message.kind === 'invalid') expect(message.reason).not.toBe('');
  });

  it('[ID6] that we write hold what they are given byte for byte', () => {
    expect(responseText('1.0', '{"a":1e400}')).toBe('{"jsonrpc":"2.0","id":1.0,"result":{"a":1e400}}');
    expect(errorText('null', '{"code":-1}')).toBe('{"jsonrpc":"2.0","id":null,"error":{"code":-1}}');
    expect(requestText('1', 'a"b', '{}')).toBe('{"jsonrpc":"2.0","id":1,"method":"a\\"b","params":{}}');
    expect(notificationText('m', '{}')).toBe('{"jsonrpc":"2.0","method":"m","params":{}}');
  });
});
