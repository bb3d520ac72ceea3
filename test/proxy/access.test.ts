import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { type AccessRule, admit } from '../../proxy/transport/access.ts';
import { PeerLimits, bucketKey } from '../../proxy/transport/peer-limits.ts';
import { loadTokenFile, parseTokenFile } from '../../proxy/transport/token-file.ts';
import { testScope } from '../support/scope.ts';
import { tempDir } from '../support/temp-dir.ts';

const SECRET = 'correct-horse-battery-staple';

describe('the token file', () => {
  it('has a token, a role, a name and sessions; comments and blank lines are nothing', () => {
    const tokens = parseTokenFile(
      [
        '# who may connect',
        '',
        'aaaaaaaaaaaaaaaaaaaa',
        'bbbbbbbbbbbbbbbbbbbb observer screen # in the hall',
        'cccccccccccccccccccc controller ci session=a,b session=c',
        'dddddddddddddddddddd session=a',
        'e#e',
      ].join('\r\n'),
    );
    expect(tokens.map(({ role, name, sessions }) => [role, name, sessions && [...sessions]])).toEqual([
      ['controller', undefined, undefined],
      ['observer', 'screen', undefined],
      ['controller', 'ci', ['a', 'b', 'c']],
      ['controller', undefined, ['a']],
      ['controller', undefined, undefined],
    ]);
    expect(new Set(tokens.map(({ tokenId }) => tokenId)).size).toBe(5);
  });

  it.each([
    [`${SECRET} obsever`, 'line 1 of the token file: the role must be controller or observer'],
    [`a\n${SECRET} alice`, 'line 2 of the token file: the role must be controller or observer'],
    [`${SECRET} controller a b`, 'there is more than'],
    [`${SECRET} session=`, 'session= names no session'],
    [`${SECRET} observer\n${SECRET} controller`, 'line 2 of the token file: this token is there already'],
  ])('a line that is wrong is named by its number, never by its content: %#', (text, message) => {
    let caught: unknown;
    try {
      parseTokenFile(text);
    } catch (error) {
      caught = error;
    }
    expect(String(caught)).toContain(message);
    expect(String(caught)).not.toContain(SECRET);
  });

  it('warns of a file that others can read and of short tokens, without their text', () => {
    const path = join(tempDir(testScope()), 'tokens');
    writeFileSync(path, `${SECRET}\nshort-one\n`, { mode: 0o600 });
    expect(loadTokenFile(path).warnings).toEqual(['line 2 of the token file: a token under 16 characters']);
    chmodSync(path, 0o644);
    const [first] = loadTokenFile(path).warnings;
    expect(first).toContain('mode 0644');
    writeFileSync(path, '# nobody\n');
    expect(() => loadTokenFile(path)).toThrow('has no tokens');
  });
});

describe('who is let in', () => {
  const tokens = parseTokenFile(`${SECRET} observer screen session=s1\nanother-token-of-24-chars`);
  const open: AccessRule = { tokens: undefined, allowOrigins: [], loopbackHostsOnly: true };
  const guarded: AccessRule = { tokens, allowOrigins: ['https://app.example'], loopbackHostsOnly: false };
  const from = (rule: AccessRule, headers: Readonly<Record<string, string | undefined>>) => admit(rule, { headers });

  it.each(['127.0.0.1:80', 'localhost', 'LOCALHOST:1', '[::1]:99', '127.3.2.1:5'])(
    'without tokens: Host %s',
    (host) => {
      expect(from(open, { host })).toEqual({ role: 'controller' });
    },
  );

  it.each(['', 'evil.example', '127.0.0.1.evil.example', 'localhost.evil.example:80', '10.0.0.1', '127.0.0.1:80@evil'])(
    'without tokens, refused: Host %s',
    (host) => expect(from(open, { host })).toMatchObject({ status: 403 }),
  );

  it('any Origin that is not listed is refused, also with a token', () => {
    const authorization = `Bearer ${SECRET}`;
    for (const origin of ['https://evil.example', 'null', 'https://app.example.evil', 'http://app.example', '']) {
      expect(from(guarded, { host: 'h', origin, authorization })).toMatchObject({ status: 403 });
    }
    expect(from(guarded, { host: 'h', origin: 'https://APP.example', authorization })).toMatchObject({
      name: 'screen',
    });
  });

  it('a token comes in the Authorization header or the subprotocol, and carries role, name and sessions', () => {
    const encoded = Buffer.from(SECRET).toString('base64url');
    for (const headers of [
      { authorization: `bearer ${SECRET}` },
      { 'sec-websocket-protocol': `acp, acp.token.${encoded}` },
    ]) {
      const found = from(guarded, headers);
      expect(found).toMatchObject({ role: 'observer', name: 'screen', sessions: new Set(['s1']) });
    }
  });

  it.each([
    {},
    { authorization: SECRET },
    { authorization: `Basic ${SECRET}` },
    { authorization: `Bearer ${SECRET}x` },
    { authorization: `Bearer ${SECRET.slice(0, -1)}` },
    { authorization: 'Bearer ' },
    { 'sec-websocket-protocol': `acp.token.${SECRET}` },
    { cookie: `token=${SECRET}` },
    { 'x-token': SECRET },
  ])('refused: %j', (headers) => expect(from(guarded, { host: 'h', ...headers })).toMatchObject({ status: 401 }));
});

describe('limits for strangers', () => {
  const limits = (more: object = {}) => {
    const clock = { ms: 1000 };
    const options = { maxConnections: 2, maxHandshakes: 3, burst: 4, perSecond: 2, now: () => clock.ms, ...more };
    return { clock, peers: new PeerLimits(options) };
  };

  it('an address that fails too often has to wait; others do not', () => {
    const { clock, peers } = limits({ maxHandshakes: 100 });
    const attempts = (address: string, n: number) => Array.from({ length: n }, () => peers.arrive(address));
    expect(attempts('10.0.0.1', 5)).toEqual([undefined, undefined, undefined, undefined, 'rate']);
    expect(peers.arrive('10.0.0.2')).toBeUndefined();
    clock.ms += 1000;
    expect(attempts('10.0.0.1', 3)).toEqual([undefined, undefined, 'rate']);
  });

  it('who is admitted gets its attempt back', () => {
    const { peers } = limits({ maxHandshakes: 100 });
    for (let i = 0; i < 50; i++) {
      expect(peers.arrive('10.0.0.1')).toBeUndefined();
      peers.forgive('10.0.0.1');
    }
  });

  it('handshakes under way and connections are counted', () => {
    const { peers } = limits({ burst: undefined });
    expect([1, 2, 3, 4].map((n) => peers.arrive(`10.0.0.${n}`))).toEqual([
      undefined,
      undefined,
      undefined,
      'handshakes',
    ]);
    peers.left();
    expect(peers.arrive('10.0.0.9')).toBeUndefined();
    expect([peers.connect(), peers.connect(), peers.connect()]).toEqual([true, true, false]);
    peers.closed();
    expect(peers.connect()).toBe(true);
  });

  it.each([
    ['::ffff:10.0.0.1', '10.0.0.1'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2'],
    ['2001:db8::1', '2001:db8:0:0'],
    ['fe80::1%eth0', 'fe80:0:0:0'],
    ['::1', '0:0:0:0'],
  ])('%s counts as %s', (address, key) => expect(bucketKey(address)).toBe(key));
});
