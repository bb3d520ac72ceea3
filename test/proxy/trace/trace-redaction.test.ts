import { describe, expect, it } from 'vitest';
import { methodOf } from '../../../protocol/methods.ts';
import { decodeWire, encodeWire } from '../../../protocol/wire-text.ts';
import { TraceRedaction } from '../../../proxy/trace/trace-redaction.ts';

function redact(message: object | string, direction: 'in' | 'out' = 'in', redaction = new TraceRedaction([])): string {
  const text = typeof message === 'string' ? message : JSON.stringify(message);
  return decodeWire(redaction.message(encodeWire(text), direction));
}

describe('redaction of a trace', () => {
  it('leaves what holds no secret as it is, byte for byte', () => {
    for (const text of [
      '{"jsonrpc":"2.0", "id":1.0,"method":"session/prompt","params":{"prompt":[{"type":"text","text":"token: \\"token\\":\\"x\\""}]}}',
      '{"jsonrpc":"2.0","method":"session/update","params":{"update":{"usedTokens":12345678901234567890,"é":"ü"}}}',
      '{"jsonrpc":"2.0","id":"a","result":{"maxTokens":5,"tokens":[1,2]}}',
    ]) {
      expect(redact(text)).toBe(text);
    }
  });

  it.each(['authenticate', 'auth/status', 'providers/set', '_auth/custom'])(
    'params and the answer of %s go',
    (method) => {
      const redaction = new TraceRedaction([]);
      expect(redact({ id: 5, method, params: { key: 'K' } }, 'in', redaction)).toBe(
        `{"id":5,"method":"${method}","params":"[redacted]"}`,
      );
      // The same id in the other direction is another request.
      expect(redact({ id: 5, result: { fine: 1 } }, 'in', redaction)).toBe('{"id":5,"result":{"fine":1}}');
      expect(redact({ id: 5, result: { key: 'K' } }, 'out', redaction)).toBe('{"id":5,"result":"[redacted]"}');
      expect(redact({ id: 5, result: { fine: 1 } }, 'out', redaction)).toBe('{"id":5,"result":{"fine":1}}');
    },
  );

  it('every method that the table calls secret is', () => {
    expect(methodOf('client', 'authenticate')?.secret).toBe(true);
    expect(methodOf('agent', 'auth/status_update')?.secret).toBe(true);
    expect(redact({ method: 'auth/status_update', params: { a: 1 } }, 'out')).not.toContain('"a"');
    expect(redact({ id: 1, method: 'mcp/message', params: { a: 1 } }, 'out')).not.toContain('"a"');
  });

  it('an error answer of a secret request goes too', () => {
    const redaction = new TraceRedaction([]);
    redact({ id: 'x', method: 'authenticate', params: {} }, 'in', redaction);
    expect(redact({ id: 'x', error: { code: 1, message: 'bad key K' } }, 'out', redaction)).not.toContain('K');
  });

  it('of MCP servers only the names are left, in whatever order and form', () => {
    const params = { mcpServers: [{ command: 'c', name: 'n"1', env: [] }, { url: 'u' }, 'odd'], cwd: '/w' };
    expect(JSON.parse(redact({ id: 1, method: 'session/new', params }))).toMatchObject({
      params: { mcpServers: [{ name: 'n"1', redacted: true }, { redacted: true }, { redacted: true }], cwd: '/w' },
    });
    expect(redact({ id: 1, method: 'session/load', params: { mcpServers: { a: 'SECRET' } } })).not.toContain('SECRET');
  });

  it('env and headers of any request go, and the query of an address that a person is sent to', () => {
    const terminal = {
      id: 1,
      method: 'terminal/create',
      params: { env: [{ name: 'A', value: 'SECRET' }], command: 'ls' },
    };
    expect(redact(terminal)).toBe('{"id":1,"method":"terminal/create","params":{"env":"[redacted]","command":"ls"}}');
    const visit = {
      id: 1,
      method: 'elicitation/create',
      params: { mode: 'url', url: 'https://a.example/x?code=SECRET' },
    };
    expect(JSON.parse(redact(visit))).toMatchObject({ params: { url: 'https://a.example/x?[redacted]' } });
  });

  it('strings under keys that sound like secrets go at any depth', () => {
    const keys = ['token', 'access_token', 'apiKey', 'api-key', 'API_KEY', 'password', 'clientSecret', 'Authorization'];
    const deep = Object.fromEntries(keys.map((key) => [key, 'SE"CR\\ET']));
    const text = redact({ id: 1, method: 'x/y', params: { a: [{ deep }] } });
    expect(text).not.toContain('SE');
    expect(Object.keys((JSON.parse(text) as { params: { a: [{ deep: object }] } }).params.a[0].deep)).toEqual(keys);
  });

  it('patterns are looked for in values, past their escapes, and not in keys', () => {
    const redaction = new TraceRedaction([/h\u00fcnter\d/gu]);
    const text = '{"id":1,"method":"m","params":{"hünter1":"a \\u0022hünter2\\n","n":1.0}}';
    expect(redact(text, 'in', redaction)).toBe(
      '{"id":1,"method":"m","params":{"hünter1":"a \\"[redacted]\\n","n":1.0}}',
    );
    expect(redaction.text('noise hünter3')).toBe('noise [redacted]');
  });
});
