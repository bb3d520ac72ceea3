/** The client library in a real browser, over a bad network. */
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { build } from 'esbuild';
import { chromium } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { transcriptOf } from '../../protocol/v1/fold.ts';
import { toldBy } from '../support/network-clients.ts';
import { NetworkProxy } from '../support/network-proxy.ts';
import { RawClient } from '../support/raw-client.ts';
import { type Scope, testScope } from '../support/scope.ts';
import { ROOT } from '../support/scripted-agent.ts';
import { Sidecar } from '../support/sidecar.ts';
import { tempDir } from '../support/temp-dir.ts';

const AGENT = [process.execPath, join(ROOT, 'dist/test/support/network-agent.js')];
const TOKEN = 'tökén-of-the-browser';
const DROPS = 12;

function installed(): string | undefined {
  try {
    return execFileSync('which', ['chromium'], { encoding: 'utf8' }).trim();
  } catch {
    return undefined;
  }
}

const PAGE = `
import { client } from '@agentclientprotocol/sdk';
import { resumableStream } from 'acp-sidecar/client';
globalThis.start = async (url, token) => {
  const updates = [];
  const states = [];
  const cards = [];
  const stream = resumableStream({
    url, token, heartbeatMs: 200, firstBackoffMs: 10, longestBackoffMs: 100,
    onState: (state) => states.push(state.phase),
  });
  const { agent } = client({ name: 'page' })
    .onNotification('session/update', ({ params }) => void updates.push({ params }))
    .onRequest('session/request_permission', ({ params }) => {
      cards.push(params.toolCall.toolCallId);
      return { outcome: { outcome: 'selected', optionId: 'yes' } };
    })
    .connect(stream);
  await agent.request('initialize', { protocolVersion: 1, clientCapabilities: {} });
  const { sessionId } = await agent.request('session/new', { cwd: '/tmp', mcpServers: [] });
  globalThis.page = { sessionId, updates, states, cards, stops: [] };
  globalThis.prompt = async (text) => {
    const { stopReason } = await agent.request('session/prompt', { sessionId, prompt: [{ type: 'text', text }] });
    globalThis.page.stops.push(stopReason);
  };
  return sessionId;
};
`;

async function servePage(scope: Scope): Promise<string> {
  const built = await build({
    stdin: { contents: PAGE, resolveDir: ROOT },
    bundle: true,
    format: 'iife',
    platform: 'browser',
    write: false,
  });
  const script = built.outputFiles[0]?.text ?? '';
  const server = createServer((request, response) => {
    const isScript = request.url === '/page.js';
    response.setHeader('content-type', isScript ? 'text/javascript' : 'text/html');
    response.end(isScript ? script : '<!doctype html><meta charset="utf-8"><script src="/page.js"></script>');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  scope.defer(() => server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function freePort(): Promise<number> {
  const server = createTcpServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

interface PageState {
  readonly sessionId: string;
  readonly updates: { params: Record<string, unknown> }[];
  readonly states: string[];
  readonly cards: string[];
  readonly stops: string[];
}

declare const start: (url: string, token: string) => Promise<string>;
declare const prompt: (text: string) => Promise<void>;
declare const page: PageState;

const path = installed();

describe.skipIf(path === undefined)('in Chromium', () => {
  it(`[RC1] [RC3] a page on the SDK's client survives ${DROPS} drops`, { timeout: 120_000 }, async () => {
    const scope = testScope();
    const origin = await servePage(scope);
    const tokenFile = join(tempDir(scope), 'tokens');
    writeFileSync(tokenFile, `${TOKEN} controller page\n`);
    const port = await freePort();
    const args = ['--allow-origin', origin, '--token-file', tokenFile, '--listen', `127.0.0.1:${port}`];
    const sidecar = await Sidecar.start(scope, { agent: AGENT, args: [...args, '--heartbeat', '200ms'] });
    const network = await NetworkProxy.listen(scope, port);
    const browser = await chromium.launch({
      executablePath: path ?? '',
      args: [
        '--no-sandbox',
        '--disable-gpu',
        '--disable-quic',
        '--no-first-run',
        '--disable-background-networking',
        '--disable-component-update',
        '--disable-sync',
      ],
    });
    scope.defer(() => browser.close());
    const tab = await browser.newPage();
    await tab.goto(origin);
    const url = `ws://127.0.0.1:${network.port}/acp`;
    const sessionId = await tab.evaluate(([to, token]) => start(to, token), [url, TOKEN] as const);
    let drops = 0;
    for (let turn = 0; drops < DROPS; turn++) {
      const order = { label: `p${turn}.`, chunks: 60, everyMs: 8, askEvery: 2 };
      const done = tab.evaluate((text) => prompt(text), JSON.stringify(order)).then(() => true);
      while (!(await Promise.race([done, sleep(120).then(() => false)]))) {
        drops += turn % 3 === 2 ? network.halfOpen() : network.cut();
      }
    }
    const { updates, cards, stops, states } = await tab.evaluate(() => page);
    const steady = await RawClient.unix(scope, sidecar.socketPath);
    await steady.initialize();
    await steady.load(sessionId);
    const recorded = steady.updates(sessionId).map(({ message }) => ({ params: message.params ?? {} }));
    expect(transcriptOf(toldBy(updates, sessionId))).toEqual(transcriptOf(toldBy(recorded, sessionId)));
    expect(new Set(stops)).toEqual(new Set(['end_turn']));
    expect(new Set(cards).size, 'every card once').toBe(cards.length);
    expect(cards.length).toBe(stops.length * 3);
    expect(states.filter((state) => state === 'live').length).toBeGreaterThan(3);
  });
});

it('what browsers load imports nothing of Node', async () => {
  const built = await build({
    entryPoints: [join(ROOT, 'proxy/client/browser.ts')],
    bundle: true,
    format: 'esm',
    platform: 'browser',
    write: false,
    metafile: true,
  });
  const inputs = Object.keys(built.metafile.inputs);
  expect(inputs.filter((input) => input.includes('node_modules') || input.startsWith('node:'))).toEqual([]);
  expect(inputs.length).toBeGreaterThan(10);
  expect(built.outputFiles[0]?.text).not.toMatch(/\bprocess\.|\bBuffer\b|\brequire\(/);
});
