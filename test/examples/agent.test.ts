import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { Readable, Writable } from 'node:stream';
import {
  type ClientContext,
  client,
  type ContentBlock,
  ndJsonStream,
  type RequestPermissionRequest,
  type SessionUpdate,
} from '@agentclientprotocol/sdk';
import { describe, expect, it } from 'vitest';
import { ANSWER } from '../../examples/answer.ts';

const AGENT = join(import.meta.dirname, '../../dist/examples/agent.js');

interface Talk {
  readonly updates: SessionUpdate[];
  readonly questions: RequestPermissionRequest[];
}

async function talk(
  env: NodeJS.ProcessEnv,
  op: (context: ClientContext, sessionId: string, talk: Talk) => Promise<void>,
): Promise<Talk> {
  const child = spawn(process.execPath, [AGENT], {
    env: { ...process.env, ...env },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const found: Talk = { updates: [], questions: [] };
  const stream = ndJsonStream(
    Writable.toWeb(child.stdin) as WritableStream<Uint8Array>,
    Readable.toWeb(child.stdout) as ReadableStream<Uint8Array>,
  );
  await client()
    .onNotification('session/update', ({ params }) => {
      found.updates.push(params.update);
    })
    .onRequest('session/request_permission', ({ params }) => {
      found.questions.push(params);
      return { outcome: { outcome: 'selected' as const, optionId: 'yes' } };
    })
    .connectWith(stream, async (context) => {
      await context.request('initialize', { protocolVersion: 1 });
      const { sessionId } = await context.request('session/new', { cwd: '/', mcpServers: [] });
      await op(context, sessionId, found);
    });
  child.kill();
  return found;
}

function texts(updates: readonly SessionUpdate[]): string {
  return updates
    .map((update) =>
      update.sessionUpdate === 'agent_message_chunk' && update.content.type === 'text' ? update.content.text : '',
    )
    .join('');
}

describe('the example agent', () => {
  it('thinks, plans, asks, runs its tool and answers', async () => {
    const found = await talk({ EXAMPLE_AGENT_WORD_MS: '0' }, async (context, sessionId) => {
      const prompt: ContentBlock[] = [{ type: 'text', text: 'use a tool' }];
      const answer = await context.request('session/prompt', { sessionId, prompt });
      expect(answer.stopReason).toBe('end_turn');
    });
    expect(found.questions).toHaveLength(1);
    const kinds = [...new Set(found.updates.map((update) => update.sessionUpdate))];
    expect(kinds).toEqual(['agent_thought_chunk', 'plan', 'tool_call', 'tool_call_update', 'agent_message_chunk']);
    expect(texts(found.updates)).toBe(ANSWER);
  });

  it('ends its turn when it is cancelled', async () => {
    await talk({ EXAMPLE_AGENT_WORD_MS: '100000' }, async (context, sessionId, found) => {
      const prompt: ContentBlock[] = [{ type: 'text', text: 'hello' }];
      const answer = context.request('session/prompt', { sessionId, prompt });
      while (found.updates.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
      await context.notify('session/cancel', { sessionId });
      expect((await answer).stopReason).toBe('cancelled');
    });
  });
});
