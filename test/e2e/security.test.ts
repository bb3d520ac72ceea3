/** Who gets in, and what strangers can do: the threat model of SECURITY.md, one test a line. */
import { randomBytes } from 'node:crypto';
import { chmodSync, mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { type Socket, connect } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { type Scope, testScope } from '../support/scope.ts';
import { runCommand, Sidecar } from '../support/sidecar.ts';
import { ROOT, ScriptedAgent } from '../support/scripted-agent.ts';
import { setStage } from '../support/stage.ts';
import { tempDir } from '../support/temp-dir.ts';
import { FIRST_CERTIFICATE, SECOND_CERTIFICATE, type TestCertificate } from '../support/test-certificates.ts';
import { getStatus, tryUpgrade } from '../support/upgrade.ts';
import { waitFor, within } from '../support/wait-for.ts';

const CONTROLLER = 'controller-token-0123456789abcdef';
const OBSERVER = 'observer-token-0123456789abcdef';

function tokenFile(scope: Scope, text = `${CONTROLLER} controller alice\n${OBSERVER} observer screen\n`): string {
  const path = join(tempDir(scope), 'tokens');
  writeFileSync(path, text, { mode: 0o600 });
  return path;
}

function certificateFiles(
  scope: Scope,
  { cert, key }: TestCertificate,
): { args: string[]; write: (to: TestCertificate) => void } {
  const dir = tempDir(scope);
  const paths = { cert: join(dir, 'cert.pem'), key: join(dir, 'key.pem') };
  const write = (to: TestCertificate): void => {
    writeFileSync(paths.cert, to.cert);
    writeFileSync(paths.key, to.key, { mode: 0o600 });
  };
  write({ cert, key });
  return { args: ['--tls-cert', paths.cert, '--tls-key', paths.key], write };
}

async function start(scope: Scope, ...args: string[]): Promise<{ sidecar: Sidecar; url: string }> {
  const agent = await ScriptedAgent.listen(scope);
  const sidecar = await Sidecar.start(scope, { agent: agent.command, args });
  const { endpoints } = JSON.parse(sidecar.readyLine) as { endpoints: string[] };
  return { sidecar, url: endpoints.find((endpoint) => endpoint.startsWith('ws')) ?? '' };
}

const bearer = (token: string): { authorization: string } => ({ authorization: `Bearer ${token}` });
const logged = (sidecar: Sidecar, text: string): Promise<unknown> =>
  waitFor(
    () => `"${text}" in the log:\n${sidecar.stderr}`,
    () => sidecar.stderr.includes(text),
  );

async function rawSocket(
  scope: Scope,
  url: string,
): Promise<{ socket: Socket; text: () => string; closed: Promise<void> }> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  scope.defer(() => socket.destroy());
  let text = '';
  socket.setEncoding('latin1').on('data', (more: string) => (text += more));
  socket.on('error', () => undefined);
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  await new Promise((resolve) => socket.once('connect', resolve));
  return { socket, text: () => text, closed };
}

describe('who gets in', () => {
  it('[AC2] T1: a page of another origin cannot connect, whatever else it sends', async () => {
    const { url } = await start(testScope(), '--allow-origin', 'https://app.example');
    for (const origin of ['https://evil.example', 'null', 'http://127.0.0.1', new URL(url).origin]) {
      expect((await tryUpgrade(url, { headers: { origin } })).status, origin).toBe(403);
    }
    expect((await tryUpgrade(url, { headers: { origin: 'https://app.example' } })).status).toBe(101);
    expect((await tryUpgrade(url)).status).toBe(101);
  });

  it('T2: a name that an attacker has bound to 127.0.0.1 (DNS rebinding) opens nothing, nor the metrics', async () => {
    const { url } = await start(testScope());
    for (const host of ['evil.example', '127.0.0.1.evil.example:80', 'localhost.evil.example']) {
      expect((await tryUpgrade(url, { headers: { host } })).status, host).toBe(403);
      expect(await getStatus(url, '/metrics', host), host).toBe(403);
    }
    expect(await getStatus(url, '/metrics')).toBe(200);
  });

  it('[AC3] T3: without a token of the file nobody gets past the upgrade', async () => {
    const scope = testScope();
    const { url, sidecar } = await start(scope, '--token-file', tokenFile(scope));
    for (const headers of [{}, bearer('wrong'), bearer(`${CONTROLLER}x`), bearer(''), { authorization: CONTROLLER }]) {
      expect((await tryUpgrade(url, { headers })).status).toBe(401);
    }
    expect((await tryUpgrade(url, { headers: bearer(CONTROLLER) })).status).toBe(101);
    const encoded = Buffer.from(CONTROLLER).toString('base64url');
    const protocols = { 'sec-websocket-protocol': `acp, acp.token.${encoded}` };
    const answer = await tryUpgrade(url, { headers: protocols });
    expect(answer.status).toBe(101);
    expect(answer.headers['sec-websocket-protocol']).toBe('acp');
    expect(await getStatus(url, '/metrics')).toBe(401);
    expect(sidecar.stderr).not.toContain(CONTROLLER);
    expect(sidecar.stderr).not.toContain(encoded);
  });

  it('T4: a token in a URL is not accepted, and not logged', async () => {
    const scope = testScope();
    const { url, sidecar } = await start(scope, '--token-file', tokenFile(scope), '--log-level', 'trace');
    for (const path of [`/acp?token=${CONTROLLER}`, `/acp?access_token=${CONTROLLER}`, `/acp/${CONTROLLER}`]) {
      expect([401, 404]).toContain((await tryUpgrade(url, { path })).status);
    }
    const { host } = new URL(url);
    await expect(
      new Promise((resolve, reject) => {
        const socket = new WebSocket(`ws://${CONTROLLER}@${host}/acp`);
        socket.on('error', reject).on('open', resolve);
      }),
    ).rejects.toThrow('401');
    await logged(sidecar, 'connection refused');
    expect(sidecar.stderr).not.toContain(CONTROLLER);
  });

  it('[AC1] T5: an address that others can reach is refused at the start without tokens and without TLS', async () => {
    const scope = testScope();
    const store = ['--store', join(tempDir(scope), 'store')];
    const agent = ['--', process.execPath, '-e', '0'];
    const serve = (...args: string[]) => runCommand(['serve', ...store, ...args, ...agent]);
    const open = ['--listen', '0.0.0.0:0'];
    const naked = await serve(...open);
    expect([naked.code, naked.stderr]).toEqual([2, expect.stringContaining('--token-file')]);
    const plain = await serve(...open, '--token-file', tokenFile(scope));
    expect([plain.code, plain.stderr]).toEqual([2, expect.stringContaining('--tls-cert')]);
    const insecure = await serve(...open, '--insecure-plaintext');
    expect(insecure.code).toBe(2);
    const half = await serve('--tls-cert', '/nowhere');
    expect([half.code, half.stderr]).toEqual([2, expect.stringContaining('given together')]);
    for (const [file, what] of [
      ['/nowhere/tokens', 'ENOENT'],
      [tokenFile(scope, '# empty\n'), 'has no tokens'],
      [tokenFile(scope, `${CONTROLLER} admin`), 'line 1'],
    ] as const) {
      const wrong = await serve('--token-file', file);
      expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining(what)]);
      expect(wrong.stderr).not.toContain(CONTROLLER);
    }
  });

  it('T6: tokens are compared by digest, each one, in constant time', () => {
    const source = readFileSync(join(ROOT, 'proxy/transport/access.ts'), 'utf8');
    const compare = source.slice(source.indexOf('export function findToken'));
    expect(compare.slice(0, compare.indexOf('\n}'))).toMatch(
      /for \(const token of tokens\) if \(timingSafeEqual\(token\.digest, digest\)\)/,
    );
    expect(source).not.toMatch(/(===|!==|includes\(|has\(|get\()\s*given/);
  });

  it('T7: TLS is served with the certificate, nothing else is; SIGHUP takes a new one and keeps the old when it is wrong', async () => {
    const scope = testScope();
    const files = certificateFiles(scope, FIRST_CERTIFICATE);
    const { sidecar, url } = await start(scope, ...files.args, '--token-file', tokenFile(scope));
    expect(url).toMatch(/^wss:/);
    const headers = bearer(CONTROLLER);
    const upgrade = (ca: TestCertificate): Promise<number> =>
      tryUpgrade(url, { headers, ca: ca.cert }).then(({ status }) => status);
    expect(await upgrade(FIRST_CERTIFICATE)).toBe(101);
    await expect(tryUpgrade(url.replace('wss', 'ws'), { headers })).rejects.toThrow();
    const socket = new WebSocket(url, { headers, ca: FIRST_CERTIFICATE.cert });
    await new Promise((resolve) => socket.once('open', resolve));
    files.write({ cert: 'nonsense', key: 'nonsense' });
    process.kill(sidecar.pid, 'SIGHUP');
    await logged(sidecar, 'what was read before stays');
    expect(await upgrade(FIRST_CERTIFICATE)).toBe(101);
    files.write(SECOND_CERTIFICATE);
    process.kill(sidecar.pid, 'SIGHUP');
    await logged(sidecar, '"reloaded"');
    expect(await upgrade(SECOND_CERTIFICATE)).toBe(101);
    await expect(upgrade(FIRST_CERTIFICATE)).rejects.toThrow();
    // Who was connected stays, and is served.
    const answer = new Promise((resolve) => socket.once('message', resolve));
    socket.send('{"jsonrpc":"2.0","id":1,"method":"nothing"}');
    await within('an answer over TLS', answer);
    socket.terminate();
  });

  it('[AC6] T8: SIGHUP withdraws tokens: their connections end, those of others stay', async () => {
    const scope = testScope();
    const file = tokenFile(scope);
    const { sidecar, url } = await start(scope, '--token-file', file);
    const alice = await sidecar.webSocket(scope, { headers: bearer(CONTROLLER) });
    const screen = await sidecar.webSocket(scope, { headers: bearer(OBSERVER) });
    await alice.initialize();
    await screen.initialize();
    writeFileSync(file, `${CONTROLLER} nonsense`);
    process.kill(sidecar.pid, 'SIGHUP');
    await logged(sidecar, 'what was read before stays');
    expect(screen.closed).toBeUndefined();
    writeFileSync(file, `${CONTROLLER} controller alice\n`);
    process.kill(sidecar.pid, 'SIGHUP');
    expect((await screen.untilClosed()).code).toBe(1008);
    await alice.newSession();
    expect((await tryUpgrade(url, { headers: bearer(OBSERVER) })).status).toBe(401);
  });

  it('T9: a Unix socket in a directory that others can enter is refused; the socket is ours alone', async () => {
    const scope = testScope();
    const dir = tempDir(scope);
    const open = join(dir, 'open');
    mkdirSync(open);
    chmodSync(open, 0o755);
    const store = ['--store', join(dir, 'store')];
    const agent = ['--', process.execPath, '-e', 'process.stdin.resume()'];
    const refused = await runCommand(['serve', ...store, '--listen', `unix:${open}/s.sock`, ...agent]);
    expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining('0700')]);
    const { sidecar } = await start(scope);
    expect(statSync(sidecar.socketPath).mode & 0o777).toBe(0o600);
  });
});

describe('strangers', () => {
  it('[AC7] T10: a handshake that never ends is cut off; it held up nobody', async () => {
    const scope = testScope();
    const { url, sidecar } = await start(scope);
    const drip = await rawSocket(scope, url);
    const silent = await rawSocket(scope, url);
    drip.socket.write('GET /acp HTTP/1.1\r\nHost: 127.0.0.1\r\n');
    const timer = setInterval(() => drip.socket.write('X-A: b\r\n'), 100);
    scope.defer(() => clearInterval(timer));
    expect((await tryUpgrade(url)).status).toBe(101);
    await within('both to be cut off', Promise.all([drip.closed, silent.closed]), 14_000);
    expect(drip.text()).not.toContain('101');
    expect(sidecar.stderr).not.toContain('"level":50');
  });

  it('T11: an address that keeps failing is turned away unread; who has a token is not held up by its own attempts', async () => {
    const scope = testScope();
    const { url } = await start(scope, '--token-file', tokenFile(scope));
    for (let i = 0; i < 60; i++) expect((await tryUpgrade(url, { headers: bearer(CONTROLLER) })).status).toBe(101);
    const statuses: number[] = [];
    for (let i = 0; i < 80 && !statuses.includes(503); i++) {
      statuses.push((await tryUpgrade(url, { headers: bearer('wrong') })).status);
    }
    expect(statuses).toContain(401);
    expect(statuses.at(-1)).toBe(503);
    await waitFor(
      'it to be forgiven',
      async () => (await tryUpgrade(url, { headers: bearer(CONTROLLER) })).status === 101,
    );
  });

  it('T12: there are no more connections than --max-connections', async () => {
    const scope = testScope();
    const { sidecar, url } = await start(scope, '--max-connections', '3');
    const clients = [await sidecar.webSocket(scope), await sidecar.unix(scope), await sidecar.webSocket(scope)];
    expect((await tryUpgrade(url)).status).toBe(503);
    const fourth = await sidecar.unix(scope);
    await fourth.untilClosed();
    await clients[0]?.initialize();
    clients[2]?.cut();
    await waitFor('room for another', async () => (await tryUpgrade(url)).status === 101);
  });

  it('T13: a frame that announces 1 GiB costs no memory and ends only its sender', async () => {
    const scope = testScope();
    const stage = await setStage(scope);
    const { sidecar } = stage;
    const rss = (): number =>
      Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${sidecar.pid}/status`, 'utf8'))?.[1]) / 1024;
    const before = rss();
    const peer = await rawSocket(scope, sidecar.wsUrl);
    peer.socket.write(
      'GET /acp HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n' +
        `Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${randomBytes(16).toString('base64')}\r\n\r\n`,
    );
    await waitFor('the upgrade', () => peer.text().includes('101'));
    const head = Buffer.from([0x81, 0xff, 0, 0, 0, 0, 0x40, 0, 0, 0, 1, 2, 3, 4]);
    peer.socket.write(Buffer.concat([head, Buffer.alloc(64 * 1024)]));
    await within('the sender to be cut off', peer.closed);
    expect(rss() - before).toBeLessThan(100);
    await (await stage.turn()).end();
  });

  it('T14: a store that is a symbolic link, or has one in place of its file, is not opened', async () => {
    const scope = testScope();
    const dir = tempDir(scope);
    mkdirSync(join(dir, 'real'), { mode: 0o700 });
    symlinkSync(join(dir, 'real'), join(dir, 'link'));
    const agent = ['--', process.execPath, '-e', '0'];
    const linked = await runCommand(['serve', '--store', join(dir, 'link'), '--listen', '127.0.0.1:0', ...agent]);
    expect([linked.code, linked.stderr]).toEqual([4, expect.stringContaining('link')]);
    mkdirSync(join(dir, 'planted'), { mode: 0o700 });
    symlinkSync('/etc/passwd', join(dir, 'planted/data.mdb'));
    const planted = await runCommand(['serve', '--store', join(dir, 'planted'), '--listen', '127.0.0.1:0', ...agent]);
    expect(planted.code).toBe(4);
    expect(planted.stderr).toContain('data.mdb');
  });
});
