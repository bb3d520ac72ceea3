import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Config, type ConfigSources, loadConfig } from '../../proxy/config.ts';
import { parseAddress, parseDuration, parseOrigin, parseSize } from '../../proxy/option-values.ts';
import { envName, fileKey, OPTION_FIELDS, OPTIONS, type OptionSpec } from '../../proxy/options.ts';

let dir: string;
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'config-'));
});
afterAll(() => rmSync(dir, { recursive: true }));

function load(sources: Partial<ConfigSources>, command: 'serve' | 'run' = 'serve'): Promise<Config> {
  return loadConfig(command, { flags: {}, env: {}, cwd: '/project', ...sources });
}

function file(content: unknown): string {
  const path = join(dir, `${Math.random()}.json`);
  writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content));
  return path;
}

describe('precedence', () => {
  it('is flag, environment, file, default', async () => {
    const configFile = file({ drain: '1s', stall: '1s', heartbeat: '1s' });
    const env = { ACP_SIDECAR_DRAIN: '2s', ACP_SIDECAR_STALL: '2s' };
    const config = await load({ configFile, env, flags: { drain: ['3s'] } });
    expect(config).toMatchObject({ drainMs: 3000, stallMs: 2000, heartbeatMs: 1000, onBusy: 'queue' });
  });

  it('counts an empty environment variable as not set', async () => {
    expect((await load({ env: { ACP_SIDECAR_ON_BUSY: '' } })).onBusy).toBe('queue');
  });

  it('ignores the variables that Kubernetes makes of a service named like us', async () => {
    const env = { ACP_SIDECAR_PORT: 'tcp://10.0.0.1:80', ACP_SIDECAR_SERVICE_HOST: '10.0.0.1' };
    await expect(load({ env })).resolves.toBeDefined();
    const names = OPTION_FIELDS.map((field) => envName(OPTIONS[field]));
    expect(names.filter((name) => /_(PORT|HOST)$/.test(name))).toEqual([]);
  });

  it('names the config file in the environment too', async () => {
    expect((await load({ env: { ACP_SIDECAR_CONFIG: file({ onBusy: 'reject' }) } })).onBusy).toBe('reject');
  });
});

describe('every option', () => {
  const given: { readonly [K in keyof Config]: readonly [text: string, value: Config[K], inFile?: unknown] } = {
    storeDir: ['/s', '/s'],
    listen: ['127.0.0.1:1', [{ kind: 'tcp', host: '127.0.0.1', port: 1 }], ['127.0.0.1:1']],
    tokenFile: ['/t', '/t'],
    tlsCert: ['/c', '/c'],
    tlsKey: ['/k', '/k'],
    maxConnections: ['7', 7, 7],
    maxOpenSessions: ['7', 7, 7],
    redact: ['sk-.+', [/sk-.+/gu], ['sk-.+']],
    insecurePlaintext: ['true', true, true],
    allowOrigins: ['https://a.example', ['https://a.example'], ['https://a.example']],
    onBusy: ['reject', 'reject'],
    approvalTimeoutMs: ['5m', 300_000],
    heartbeatMs: ['7s', 7000],
    maxMessageBytes: ['1MiB', 1_048_576, 1_048_576],
    clientBufferBytes: ['64KiB', 65_536],
    clientCapabilities: ['{"fs":{}}', { fs: {} }, { fs: {} }],
    restore: ['prime,load', ['prime', 'load'], ['prime', 'load']],
    idleExitMs: ['1h', 3_600_000],
    agentIdleMs: ['15m', 900_000],
    drainMs: ['0s', 0],
    stallMs: ['2m', 120_000],
    traceFile: ['/trace', '/trace'],
    retain: ['30d,500', { ageMs: 30 * 86_400_000, count: 500 }],
    retainEvents: ['100MiB', { bytes: 100 * 1024 ** 2 }],
    logLevel: ['warn', 'warn'],
  };

  it.each(OPTION_FIELDS)('%s is read from flag, environment and file', async (field) => {
    const spec: OptionSpec = OPTIONS[field];
    const [text, value, inFile = text] = given[field];
    const command = spec.commands.includes('serve') ? 'serve' : 'run';
    expect((await load({ flags: { [spec.name]: [text] } }, command))[field]).toEqual(value);
    expect((await load({ env: { [envName(spec)]: text } }, command))[field]).toEqual(value);
    expect((await load({ configFile: file({ [fileKey(spec)]: inFile }) }, command))[field]).toEqual(value);
    expect((await load({}))[field]).not.toEqual(value);
  });
});

describe('errors say what was wrong, where, and what is right', () => {
  it.each([
    [{ flags: { drain: ['5'] } }, '--drain: "5" is not a duration; write a number and a unit'],
    [{ flags: { 'approval-timeout': ['30d'] } }, '--approval-timeout: "30d" is too long; the most is 24d'],
    [{ env: { ACP_SIDECAR_MAX_MESSAGE_BYTES: '16MB' } }, 'ACP_SIDECAR_MAX_MESSAGE_BYTES: "16MB" is not a size'],
    [{ flags: { 'on-busy': ['drop'] } }, '"drop" is not one of queue, reject'],
    [{ flags: { restore: ['resume,magic'] } }, 'is not one of resume, load, prime'],
    [{ flags: { listen: ['8080'] } }, '"8080" is not an address; write HOST:PORT'],
    [{ flags: { listen: ['wss://127.0.0.1:1'] } }, 'needs --tls-cert and --tls-key'],
    [{ flags: { redact: ['('] } }, '"(" is not a regular expression'],
    [{ flags: { redact: ['a*'] } }, 'matches the empty text'],
    [{ flags: { 'max-connections': ['0'] } }, 'is not a whole number from 1 on'],
    [{ flags: { 'allow-origin': ['example.com'] } }, 'is not an origin'],
    [{ flags: { 'client-capabilities': ['[]'] } }, 'is not a JSON object'],
    [{ flags: { listen: ['0.0.0.0:80'] } }, 'can be reached from other machines and needs tokens'],
    [{ flags: { listen: ['0.0.0.0:80'], 'token-file': ['/t'] } }, 'would send tokens unencrypted'],
    [{ configFile: '/nowhere.json' }, 'config file /nowhere.json cannot be read'],
  ])('%j', async (sources, message) => {
    await expect(load(sources)).rejects.toMatchObject({
      name: 'CommandError',
      reason: 'usage',
      message: expect.stringContaining(message) as string,
    });
  });

  it.each([
    ['{', 'is not JSON'],
    [{ onBsy: 'queue' }, 'onBsy'],
    [{ onBusy: 1 }, 'onBusy'],
    [{ drain: 'soon' }, 'drain in '],
  ])('config file %j', async (content, message) => {
    const error: unknown = await load({ configFile: file(content) }).catch((caught: unknown) => caught);
    expect(error).toMatchObject({ reason: 'usage', message: expect.stringContaining(message) as string });
  });
});

it('paths in the config file are relative to it, others to the working directory', async () => {
  expect((await load({ configFile: file({ store: 'log' }) })).storeDir).toBe(join(dir, 'log'));
  expect((await load({ flags: { store: ['log'] } })).storeDir).toBe('/project/log');
});

it('a wrong option of another command is none of our business', async () => {
  const env = { ACP_SIDECAR_DRAIN: 'nonsense' };
  await expect(loadConfig('sessions', { flags: {}, env, cwd: '/' })).resolves.toBeDefined();
});

describe('values', () => {
  it.each([
    ['500ms', 500],
    ['30s', 30_000],
    ['5m', 300_000],
    ['12h', 43_200_000],
    ['30d', 2_592_000_000],
  ])('duration %s', (text, ms) => expect(parseDuration(text)).toBe(ms));

  it.each([
    ['0', 0],
    ['64KiB', 65_536],
    ['16MiB', 16_777_216],
    ['1GiB', 1_073_741_824],
  ])('size %s', (text, bytes) => expect(parseSize(text)).toBe(bytes));

  it.each([
    ['127.0.0.1:0', { kind: 'tcp', host: '127.0.0.1', port: 0 }],
    ['[::1]:99', { kind: 'tcp', host: '::1', port: 99 }],
    ['ws://localhost:7777/acp', { kind: 'tcp', host: 'localhost', port: 7777 }],
    ['ws://[::1]:7777', { kind: 'tcp', host: '::1', port: 7777 }],
    ['wss://h:7777/acp', { kind: 'tcp', host: 'h', port: 7777, secure: true }],
    ['unix:/run/a.sock', { kind: 'unix', path: '/run/a.sock' }],
  ])('address %s', (text, address) => expect(parseAddress(text)).toEqual(address));

  it.each(['', ':1', 'h:', 'h:65536', 'ws://h:1/other', 'http://h:1', 'unix:', `unix:/${'x'.repeat(110)}`])(
    'no address: %s',
    (text) => expect(() => parseAddress(text)).toThrow(),
  );

  it.each([
    ['https://a.example', 'https://a.example'],
    ['https://A.example/', 'https://a.example'],
    ['vscode-webview://x', 'vscode-webview://x'],
    ['null', 'null'],
  ])('origin %s', (text, origin) => expect(parseOrigin(text)).toBe(origin));
});
