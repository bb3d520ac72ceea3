/** What clients and the command line are told of a session's past, beside replay. */
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { transcriptOf } from '../../protocol/v1/fold.ts';
import { historyMessage } from '../../storage/history-message.ts';
import { at, updateOf } from '../support/json.ts';
import { testScope } from '../support/scope.ts';
import { runCommand } from '../support/sidecar.ts';
import { setStage, type Stage } from '../support/stage.ts';
import { waitFor } from '../support/wait-for.ts';

interface Page {
  readonly messages: readonly Record<string, unknown>[];
  readonly lastEventId: string;
  readonly nextBefore?: string;
}

async function page(stage: Stage, params: object = {}): Promise<Page> {
  const { client, sessionId } = stage;
  return (await client.request('_sidecar/history', { sessionId, ...params })) as Page;
}

function bare(messages: readonly Record<string, unknown>[]): unknown[] {
  return messages.map(({ eventId: _eventId, time: _time, turnId: _turnId, ...rest }) => rest);
}

/** Three turns with text and a tool call each. */
async function threeTurns(stage: Stage): Promise<void> {
  const { life, agentSessionId } = stage;
  for (let number = 1; number <= 3; number++) {
    const turn = await stage.turn(`question ${number}`);
    life.update(agentSessionId, {
      sessionUpdate: 'tool_call',
      toolCallId: `t${number}`,
      title: 'T',
      status: 'pending',
    });
    life.say(agentSessionId, `answer `);
    life.say(agentSessionId, `${number} é😀`);
    life.update(agentSessionId, { sessionUpdate: 'tool_call_update', toolCallId: `t${number}`, status: 'completed' });
    await turn.end();
  }
}

async function replayed(stage: Stage): Promise<unknown[]> {
  const fresh = await stage.join();
  await fresh.load(stage.sessionId);
  const updates = fresh.received.map(({ message }) => updateOf(message)).filter((update) => update !== undefined);
  fresh.cut();
  return bare(
    transcriptOf(updates).entries.map((entry) => historyMessage('x', { seq: 1, time: 0, turnId: undefined, entry })),
  );
}

describe('_sidecar/history', () => {
  it('[HI1] [HI4] pages back through what a full replay shows', async () => {
    const stage = await setStage(testScope(), { optIn: true });
    await threeTurns(stage);
    const messages: Record<string, unknown>[] = [];
    let before: string | undefined;
    do {
      const found: Page = await page(stage, { limit: 2, ...(before && { before }) });
      messages.push(...found.messages);
      before = found.nextBefore;
      expect(found.lastEventId).toBe(stage.client.cursors.get(stage.sessionId));
    } while (before);
    expect(messages).toHaveLength(9);
    expect(bare(messages.toReversed())).toEqual(await replayed(stage));
    expect(messages[1]).toMatchObject({ type: 'tool_call', toolCallId: 't3', status: 'completed' });
  });

  it('[HI3] is the same after its files were deleted or overwritten under the running server', async () => {
    const stage = await setStage(testScope(), { optIn: true });
    await threeTurns(stage);
    const before = await page(stage);
    const cache = join(stage.sidecar.store, 'cache');
    writeFileSync(join(cache, '1.history'), 'scribble '.repeat(5000));
    expect(await page(stage)).toEqual(before);
    rmSync(cache, { recursive: true, maxRetries: 20, retryDelay: 20 });
    expect(await page(stage)).toEqual(before);
    await stage.sidecar.restart();
    const again = await stage.sidecar.unix();
    await again.initialize({ sidecar: true });
    expect(await again.request('_sidecar/history', { sessionId: stage.sessionId })).toEqual(before);
  });

  it('[HI4] says what is wrong with a question', async () => {
    const stage = await setStage(testScope(), { optIn: true });
    const { client, sessionId } = stage;
    for (const params of [{ before: 'x-1' }, { before: 7 }, { limit: 0 }, { limit: '5' }]) {
      const { message } = await client.ask('_sidecar/history', { sessionId, ...params });
      expect(message.error?.code, JSON.stringify(params)).toBe(-32602);
    }
    const { message } = await client.ask('_sidecar/history', { sessionId: 'nobody' });
    expect(message.error).toMatchObject({ code: -32002, data: { sessionId: 'nobody' } });
  });
});

describe('a session that was cut off', () => {
  it('[HI4] is shown as repair would leave it by every reader, and nothing is written', async () => {
    const stage = await setStage(testScope(), { optIn: true });
    const { life, agentSessionId, sessionId, sidecar } = stage;
    await stage.turn('question');
    life.update(agentSessionId, { sessionUpdate: 'tool_call', toolCallId: 't', title: 'T', status: 'in_progress' });
    await stage.client.until('the tool call', ({ message }) => at(updateOf(message), 'toolCallId') === 't');
    await sidecar.kill();
    const store = ['--store', sidecar.store];
    const history = await runCommand(['history', sessionId, '--json', ...store]);
    const lines = history.stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(lines.at(-1)).toMatchObject({ type: 'tool_call', status: 'failed' });
    const events = async (): Promise<Record<string, unknown>[]> =>
      (await runCommand(['events', sessionId, '--json', ...store])).stdout
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line) as Record<string, unknown>);
    const inspected = await events();
    expect(inspected.slice(-2).map(({ type, synthetic }) => [type, synthetic])).toEqual([
      ['update', true],
      ['turn_ended', true],
    ]);
    expect(JSON.parse((await runCommand(['show', sessionId, '--json', ...store])).stdout)).toMatchObject({
      lastTurn: { state: 'ended' },
      repair: { update: 1, turn_ended: 1 },
      events: inspected.length - 2,
    });
    await sidecar.start();
    const client = await sidecar.unix();
    await client.initialize({ sidecar: true });
    const asked = (await client.request('_sidecar/events', { sessionId })) as {
      events: unknown[];
      lastEventId: string;
    };
    expect(withoutTimes(asked.events)).toEqual(withoutTimes(inspected));
    expect(asked.lastEventId).toBe(inspected.at(-1)?.['eventId']);
    const shown = (await client.request('_sidecar/history', { sessionId })) as Page;
    expect(shown.messages[0]).toMatchObject({ type: 'tool_call', status: 'failed' });
    expect(shown.lastEventId).toBe(asked.lastEventId);
    expect(await client.request('_sidecar/status', { sessionId })).toMatchObject({
      turn: null,
      bound: false,
      clients: [],
      lastEventId: asked.lastEventId,
    });
    // Nothing of it was written until the session is used.
    const { events: count } = JSON.parse((await runCommand(['show', sessionId, '--json', ...store])).stdout) as {
      events: number;
    };
    expect(count).toBe(inspected.length - 2);
    await client.load(sessionId);
    expect(withoutTimes(await events())).toEqual(withoutTimes(inspected));
  });
});

function withoutTimes(events: readonly unknown[]): unknown[] {
  return events.map((event) => ({ ...(event as object), time: undefined }));
}

describe('_sidecar/events and _sidecar/status', () => {
  it('[HI4] gives the events of the log by page and type', async () => {
    const stage = await setStage(testScope(), { optIn: true });
    await threeTurns(stage);
    const { client, sessionId } = stage;
    const all = (await client.request('_sidecar/events', { sessionId })) as {
      events: { type: string; eventId: string }[];
    };
    const printed = await runCommand(['events', sessionId, '--json', '--store', stage.sidecar.store]);
    expect(all.events).toEqual(
      printed.stdout
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line) as unknown),
    );
    const turns = { types: ['turn_started', 'turn_ended'] };
    const first = (await client.request('_sidecar/events', { sessionId, ...turns, limit: 4 })) as {
      events: { type: string; eventId: string }[];
      nextAfter: string;
    };
    const rest = (await client.request('_sidecar/events', {
      sessionId,
      ...turns,
      after: first.nextAfter,
    })) as typeof first;
    expect([...first.events, ...rest.events]).toEqual(all.events.filter(({ type }) => turns.types.includes(type)));
    expect(first.events).toHaveLength(4);
    expect(rest.nextAfter).toBeUndefined();
  });

  it('[HI4] tells who is there and what runs', async () => {
    const stage = await setStage(testScope(), { optIn: true });
    const { client, sessionId } = stage;
    const other = await stage.join({ clientId: 'other', name: 'Other', role: 'observer' });
    await other.load(sessionId);
    const turn = await stage.turn();
    expect(await client.request('_sidecar/status', { sessionId })).toMatchObject({
      turn: { state: 'running' },
      agent: { state: 'ready' },
      bound: true,
      clients: [
        { role: 'controller', driver: true },
        { clientId: 'other', name: 'Other', role: 'observer', driver: false },
      ],
    });
    await turn.end();
    expect(await other.request('_sidecar/status', { sessionId })).toMatchObject({ turn: null });
  });
});

describe('session/list', () => {
  it("[HI5] gives a session the beginning of its first user message as title, and the agent's title when there is one", async () => {
    const stage = await setStage(testScope());
    const { client, life, agentSessionId, sessionId } = stage;
    const title = async (): Promise<unknown> => at(await client.request('session/list'), 'sessions', 0, 'title');
    expect(await title()).toBeUndefined();
    const turn = await stage.turn(`please\n  fix ${'the bug '.repeat(30)}`);
    const cut = await title();
    expect(cut).toMatch(/^please fix the bug the bug.*\.\.\.$/);
    expect(String(cut).length).toBeLessThanOrEqual(80);
    life.update(agentSessionId, { sessionUpdate: 'session_info_update', title: 'Fixing' });
    await turn.end();
    await waitFor('the title of the agent', async () => (await title()) === 'Fixing');
    expect(sessionId).toBeTruthy();
  });
});

describe('acp-sidecar history', () => {
  it('[HI1] prints what _sidecar/history gives, oldest first, for programs and for people', async () => {
    const stage = await setStage(testScope(), { optIn: true });
    await threeTurns(stage);
    const store = ['--store', stage.sidecar.store];
    const json = await runCommand(['history', stage.sessionId, '--json', ...store]);
    const { messages } = await page(stage);
    expect(
      json.stdout
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line) as unknown),
    ).toEqual(messages.toReversed());
    const some = await runCommand(['history', stage.sessionId, '--limit', '3', ...store]);
    expect(some.stdout).toBe('user: question 3\ntool: T [completed]\nagent: answer 3 é😀\n');
    expect((await runCommand(['history', stage.sessionId, '--limit', 'x', ...store])).code).toBe(2);
  });
});
