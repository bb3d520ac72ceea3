/** The client library on the platform's own WebSocket, which Node has from version 22 on (`npm run test:node22`). */
import { client } from '@agentclientprotocol/sdk';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { resumableStream } from '../../proxy/client/browser.ts';
import { NetworkProxy } from '../support/network-proxy.ts';
import { testScope } from '../support/scope.ts';
import { ROOT } from '../support/scripted-agent.ts';
import { Sidecar } from '../support/sidecar.ts';

const AGENT = [process.execPath, join(ROOT, 'dist/test/support/network-agent.js')];

describe('the platform’s WebSocket', () => {
  it.skipIf('WebSocket' in globalThis)('is asked for where there is none', () => {
    expect(() => resumableStream({ url: 'ws://127.0.0.1:1/acp' })).toThrow('has no WebSocket');
  });

  it.runIf('WebSocket' in globalThis)('[RC1] carries a turn over drops', async () => {
    const scope = testScope();
    const sidecar = await Sidecar.start(scope, { agent: AGENT });
    const network = await NetworkProxy.listen(scope, Number(new URL(sidecar.wsUrl).port));
    let text = '';
    const stream = resumableStream({ url: `ws://127.0.0.1:${network.port}/acp`, firstBackoffMs: 10 });
    scope.defer(() => stream.close());
    const { agent } = client({ name: 'platform' })
      .onNotification('session/update', ({ params: { update } }) => {
        if (update.sessionUpdate !== 'agent_message_chunk' || update.content.type !== 'text') return;
        text += update.content.text;
        if (text.length % 60 < 4) network.cut();
      })
      .connect(stream);
    await agent.request('initialize', { protocolVersion: 1, clientCapabilities: {} });
    const { sessionId } = await agent.request('session/new', { cwd: '/tmp', mcpServers: [] });
    const order = { label: 'g', chunks: 9, everyMs: 40, askEvery: 0 };
    const prompt = [{ type: 'text' as const, text: JSON.stringify(order) }];
    expect(await agent.request('session/prompt', { sessionId, prompt })).toMatchObject({ stopReason: 'end_turn' });
    expect(text).toBe('g0;g1;g2;g3;g4;g5;g6;g7;g8;');
    expect(network.accepted).toBeGreaterThan(1);
  });
});
