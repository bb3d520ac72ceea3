import { expect, it } from 'vitest';
import {
  withSidecarMembers,
  withSidecarMeta,
  withoutSidecar,
  withoutSidecarMeta,
} from '../../protocol/sidecar-meta.ts';

it('[EV4] only _meta.sidecar is written, and what the agent had there is kept; what stands around it keeps its bytes and its place', () => {
  const params = '{"a":1.0,"_meta":{"x":"\\u00e9","sidecar":{"promptId":"p","old":1}},"b":9007199254740993}';
  expect(withSidecarMeta(params, { turnId: 't' })).toBe(
    '{"a":1.0,"_meta":{"sidecar":{"agent":{"sidecar":{"promptId":"p","old":1}},"turnId":"t"},"x":"\\u00e9"},"b":9007199254740993}',
  );
  expect(withSidecarMembers(params, { old: 2 })).toBe(
    '{"a":1.0,"_meta":{"sidecar":{"old":2,"promptId":"p"},"x":"\\u00e9"},"b":9007199254740993}',
  );
});

it.each([
  ['{}', '{"_meta":{"sidecar":{"k":1}}}'],
  ['{"_meta":null}', '{"_meta":{"sidecar":{"k":1}}}'],
])('a _meta that is none is replaced: %s', (params, expected) => {
  expect(withSidecarMeta(params, { k: 1 })).toBe(expected);
  expect(withSidecarMembers(params, { k: 1 })).toBe(expected);
});

it('what is no object stays what it is in a result, and becomes one in params', () => {
  expect(withSidecarMeta('null', { k: 1 })).toBe('null');
  expect(withSidecarMembers('null', { k: 1 })).toBe('{"_meta":{"sidecar":{"k":1}}}');
});

it('is taken out of params for the agent, with a _meta that held nothing else', () => {
  expect(withoutSidecarMeta('{"a":1,"_meta":{"sidecar":{}}}')).toBe('{"a":1}');
  expect(withoutSidecarMeta('{"_meta":{"cursor":"c","x":1}}', ['sidecar', 'cursor'])).toBe('{"_meta":{"x":1}}');
});

it('is taken out of an update for a client, but for what the agent had there', () => {
  const update = (meta: string): string => `{"params":{"update":{},"_meta":${meta}}}`;
  expect(withoutSidecar(update('{"eventId":"e","sidecar":{"turnId":"t"}}'))).toBe(update('{"eventId":"e"}'));
  expect(withoutSidecar(update('{"sidecar":{"turnId":"t","agent":{"eventId":"x"}}}'))).toBe(
    update('{"sidecar":{"agent":{"eventId":"x"}}}'),
  );
});
