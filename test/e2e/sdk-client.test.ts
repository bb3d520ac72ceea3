/** The ACP SDK's own client, unchanged, in front of the example agent, which the ACP SDK made too. */
import { connect } from 'node:net';
import { join } from 'node:path';
import { Readable, Writable } from 'node:stream';
import {
  client,
  ndJsonStream,
  type PromptResponse,
  type SessionNotification,
  type Stream,
} from '@agentclientprotocol/sdk';
import { createWebSocketStream } from '@agentclientprotocol/sdk/experimental/ws-client';
import { describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { testScope } from '../support/scope.ts';
import { ROOT } from '../support/scripted-agent.ts';
import { Sidecar } from '../support/sidecar.ts';

const EXAMPLE_AGENT = [process.execPath, join(ROOT, 'dist/examples/agent.js')];

const STREAMS: Record<string, (sidecar: Sidecar) => Stream> = {
  WebSocket: (sidecar) => createWebSocketStream(sidecar.wsUrl, { WebSocket }),
  'Unix socket': (sidecar) => {
    const socket = connect(sidecar.socketPath);
    return ndJsonStream(Writable.toWeb(socket), Readable.toWeb(socket) as ReadableStream<Uint8Array>);
  },
};

function textOf(updates: readonly SessionNotification[]): string {
  return updates
    .map(({ update }) =>
      update.sessionUpdate === 'agent_message_chunk' && update.content.type === 'text' ? update.content.text : '',
    )
    .join('');
}

describe.each(Object.entries(STREAMS))('over a %s', (_name, open) => {
  it('initialize, new, prompt with a permission, and load in another connection', async () => {
    const sidecar = await Sidecar.start(testScope(), { agent: EXAMPLE_AGENT, env: { EXAMPLE_AGENT_WORD_MS: '1' } });
    const live: SessionNotification[] = [];
    let asked = 0;
    const app = client({ name: 'sdk-client' })
      .onNotification('session/update', ({ params }) => void live.push(params))
      .onRequest('session/request_permission', ({ params }) => {
        asked++;
        const { optionId } = params.options[0] ?? { optionId: '' };
        return { outcome: { outcome: 'selected', optionId } };
      });
    const sessionId = await app.connectWith(open(sidecar), async (agent) => {
      const { agentCapabilities, protocolVersion } = await agent.request('initialize', {
        protocolVersion: 1,
        clientCapabilities: {},
      });
      expect(protocolVersion).toBe(1);
      expect(agentCapabilities?.loadSession).toBe(true);
      const made = await agent.request('session/new', { cwd: '/tmp', mcpServers: [] });
      const prompt = [{ type: 'text' as const, text: 'use the tool' }];
      const { stopReason } = await agent.request<PromptResponse>('session/prompt', {
        sessionId: made.sessionId,
        prompt,
      });
      expect(stopReason).toBe('end_turn');
      return made.sessionId;
    });
    expect(asked).toBe(1);
    const kinds = new Set(live.map(({ update }) => update.sessionUpdate));
    expect([...kinds].sort()).toEqual([
      'agent_message_chunk',
      'agent_thought_chunk',
      'plan',
      'tool_call',
      'tool_call_update',
    ]);
    const replayed: SessionNotification[] = [];
    const second = client({ name: 'later' }).onNotification(
      'session/update',
      ({ params }) => void replayed.push(params),
    );
    await second.connectWith(open(sidecar), async (agent) => {
      await agent.request('initialize', { protocolVersion: 1, clientCapabilities: {} });
      await agent.request('session/load', { sessionId, cwd: '/tmp', mcpServers: [] });
    });
    expect(textOf(live).length).toBeGreaterThan(100);
    expect(textOf(replayed)).toBe(textOf(live));
    expect(replayed[0]?.update).toMatchObject({
      sessionUpdate: 'user_message_chunk',
      content: { text: 'use the tool' },
    });
  });
});
