/** The sidecar's own log: ids on every line that is about something that has one, and nothing of what was said. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { at, textAt } from '../support/json.ts';
import { answerCard, askPermission, card, choose, openRoom } from '../support/room.ts';
import { testScope } from '../support/scope.ts';
import { ScriptedAgent } from '../support/scripted-agent.ts';
import { Sidecar } from '../support/sidecar.ts';
import { setStage } from '../support/stage.ts';
import { tempDir } from '../support/temp-dir.ts';
import { waitFor } from '../support/wait-for.ts';

interface Line {
  readonly msg: string;
  readonly [key: string]: unknown;
}

function linesOf(sidecar: Sidecar): Line[] {
  return sidecar.stderr
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Line);
}

function lineOf(sidecar: Sidecar, msg: string): Line {
  const found = linesOf(sidecar).find((line) => line.msg === msg);
  if (!found) throw new Error(`no line ${JSON.stringify(msg)} in:\n${sidecar.stderr}`);
  return found;
}

const TRACEPARENT = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';

describe('the log', () => {
  it('[OB1] carries the ids of session, client, turn, approval and event, and they are those of the wire', async () => {
    const room = await openRoom(testScope());
    const { sidecar } = room;
    const client = await room.enter({ sidecar: { clientId: 'client-7' } });
    const sessionId = await client.newSession();
    const answer = client.prompt(sessionId, 'go');
    await room.life().saw('session/prompt');
    askPermission(room.life(), sessionId);
    const asked = await card(client, sessionId);
    answerCard(client, asked, choose('no'));
    const { message } = await room.life().saw('session/prompt');
    await waitFor('the decision to be logged', () => sidecar.stderr.includes('approval resolved'));
    room.life().reply(message, { stopReason: 'end_turn' });
    const sidecarMeta = at(await answer, '_meta', 'sidecar');
    const turnId = textAt(sidecarMeta, 'turnId');
    const clientId = 'client-7';
    expect(lineOf(sidecar, 'client initialized')).toMatchObject({ clientId, connection: 1, role: 'controller' });
    expect(lineOf(sidecar, 'session created')).toMatchObject({ sessionId, eventId: expect.any(String) as string });
    expect(lineOf(sidecar, 'session bound')).toMatchObject({ sessionId, how: 'new' });
    expect(lineOf(sidecar, 'turn started')).toMatchObject({ sessionId, turnId, clientId });
    const approvalId = textAt(asked.message, 'params', '_meta', 'sidecar', 'approvalId');
    const cardEventId = textAt(asked.message, 'params', '_meta', 'sidecar', 'eventId');
    expect(lineOf(sidecar, 'approval requested')).toMatchObject({
      sessionId,
      turnId,
      approvalId,
      eventId: cardEventId,
    });
    const resolved = lineOf(sidecar, 'approval resolved');
    expect(resolved).toMatchObject({ sessionId, turnId, approvalId, clientId, outcome: 'rejected' });
    expect(resolved['waitedMs']).toBeGreaterThanOrEqual(0);
    const eventId = textAt(sidecarMeta, 'eventId');
    expect(lineOf(sidecar, 'turn ended')).toMatchObject({ sessionId, turnId, eventId, outcome: 'end_turn' });
  });

  it('[OB1] holds nothing of what is said, and no secret, at any level', async () => {
    const scope = testScope();
    const agent = await ScriptedAgent.listen(scope);
    const tokens = join(tempDir(scope), 'tokens');
    writeFileSync(tokens, 'PLANTED-token controller me\n', { mode: 0o600 });
    const sidecar = await Sidecar.start(scope, {
      agent: agent.command,
      args: ['--log-level', 'trace', '--token-file', tokens, '--drain', '50ms', '--max-message-bytes', '64KiB'],
    });
    agent.handlers.set('authenticate', () => ({ _meta: { key: 'PLANTED-authenticate-result' } }));
    const client = await sidecar.webSocket(undefined, { headers: { authorization: 'Bearer PLANTED-token' } });
    await client.initialize({ sidecar: true });
    await client.request('authenticate', { methodId: 'key', _meta: { key: 'PLANTED-authenticate' } });
    const sessionId = await client.newSession('/tmp', {
      mcpServers: [
        {
          name: 'tools',
          command: 'PLANTED-command',
          args: ['PLANTED-arg'],
          env: [{ name: 'KEY', value: 'PLANTED-env' }],
        },
        { type: 'http', name: 'web', url: 'https://PLANTED-url', headers: [{ name: 'a', value: 'PLANTED-header' }] },
      ],
    });
    const life = await agent.life();
    const answer = client.prompt(sessionId, 'PLANTED-prompt', { _meta: { note: 'PLANTED-meta' } });
    const { message } = await life.saw('session/prompt');
    life.say('agent-session-1', 'PLANTED-text');
    life.update('agent-session-1', { sessionUpdate: 'tool_call', toolCallId: 'c', title: 'PLANTED-title' });
    life.update('agent-session-9', {
      sessionUpdate: 'agent_message_chunk',
      content: { type: 'text', text: 'PLANTED-9' },
    });
    life.line('PLANTED-noise that is no JSON');
    life.line('{"jsonrpc":"2.0","method":"session/update","params":{"update":"PLANTED-odd"}}');
    life.line(`{"jsonrpc":"2.0","method":"session/update","params":{"a":"PLANTED-big${'x'.repeat(70_000)}"}}`);
    life.line('{"jsonrpc":"2.0","id":1234,"result":"PLANTED-response"}');
    askPermission(life, 'agent-session-1', { title: 'PLANTED-question', rawInput: 'PLANTED-input' });
    const asked = await card(client, sessionId);
    client.send(`{"jsonrpc":"2.0","id":${JSON.stringify(asked.message.id)},"result":"PLANTED-answer"}`);
    client.send('{"PLANTED-garbage');
    client.send('{"jsonrpc":"2.0","id":77,"method":"PLANTED/method","params":{"a":"PLANTED-params"}}');
    client.send('{"jsonrpc":"2.0","id":78,"method":"session/load","params":{"sessionId":"PLANTED-session"}}');
    await client.until('the answer to 78', (entry) => entry.message.id === 78);
    const again = await card(client, sessionId, 1);
    answerCard(client, again, choose('yes'));
    life.fail(message, -32000, 'PLANTED-error');
    await expect(answer).rejects.toThrow();
    life.exit(1);
    await waitFor('the exit to be logged', () => sidecar.stderr.includes('agent exited'));
    await sidecar.stop();
    expect(linesOf(sidecar).length).toBeGreaterThan(10);
    // The sessionId that a client made up is an id; everything else is content.
    const planted = [...sidecar.stderr.matchAll(/PLANTED-(\w+)/g)].map((found) => found[1]);
    expect(planted.filter((what) => what !== 'session')).toEqual([]);
  });

  it('[OB1] --redact takes out what the agent writes to its stderr, and every line stays JSON', async () => {
    const stage = await setStage(testScope(), { args: ['--redact', 'sk-[a-z0-9]+', '--redact', '"quoted"|\\\\'] });
    stage.life.stderr('using key sk-abc123 and sk-def456\nsaid "quoted" in C:\\dir\nplain\n');
    await waitFor('the last line', () => stage.sidecar.stderr.includes('plain'));
    const said = linesOf(stage.sidecar).filter(({ msg }) => msg === 'agent stderr');
    expect(said.map(({ line }) => line)).toEqual([
      'using key [redacted] and [redacted]',
      'said [redacted] in C:[redacted]dir',
      'plain',
    ]);
    expect(stage.sidecar.stderr).not.toContain('sk-abc123');
  });

  it('[OB5] traceparent reaches the agent byte for byte and is logged with the turn', async () => {
    const stage = await setStage(testScope());
    const { sessionId } = stage;
    const meta = `{ "traceparent" : "${TRACEPARENT}", "tracestate":"a=1,b=2" }`;
    stage.client.send(
      `{"jsonrpc":"2.0","id":"p","method":"session/prompt","params":{"sessionId":"${sessionId}","prompt":[],"_meta":${meta}}}`,
    );
    const { text, message } = await stage.life.saw('session/prompt');
    expect(text).toContain(meta);
    stage.life.reply(message, { stopReason: 'end_turn' });
    await stage.client.until('the answer', (entry) => entry.message.id === 'p');
    expect(lineOf(stage.sidecar, 'turn started')).toMatchObject({ sessionId, traceparent: TRACEPARENT });
  });

  it('[OB5] what is no traceparent is passed on too, and not logged', async () => {
    const stage = await setStage(testScope());
    const answer = stage.client.prompt(stage.sessionId, 'go', { _meta: { traceparent: 'PLANTED secret' } });
    const { message } = await stage.life.saw('session/prompt');
    expect(at(message, 'params', '_meta', 'traceparent')).toBe('PLANTED secret');
    stage.life.reply(message, { stopReason: 'end_turn' });
    await answer;
    expect(lineOf(stage.sidecar, 'turn started')).not.toHaveProperty('traceparent');
    expect(stage.sidecar.stderr).not.toContain('PLANTED');
  });
});
