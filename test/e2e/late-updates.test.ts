/** What the agent says of a session that does not live there any more. */
import { describe, expect, it } from 'vitest';
import { at, textAt, updateOf } from '../support/json.ts';
import type { RawClient } from '../support/raw-client.ts';
import { scrape } from '../support/scrape.ts';
import { testScope } from '../support/scope.ts';
import type { AgentLife } from '../support/scripted-agent.ts';
import { runCommand, type Sidecar } from '../support/sidecar.ts';
import { setStage, type Stage, type StageOptions } from '../support/stage.ts';
import { waitFor } from '../support/wait-for.ts';

const CAN = { loadSession: true, sessionCapabilities: { resume: {}, close: {}, delete: {} } };

const done = (life: AgentLife, sessionId: string, toolCallId: string): void =>
  life.update(sessionId, { sessionUpdate: 'tool_call', toolCallId, title: 'T', status: 'completed' });

async function stageOf(options: StageOptions = {}): Promise<Stage> {
  const stage = await setStage(testScope(), {
    capabilities: CAN,
    ...options,
    handlers: {
      'session/prompt': (request, life) => {
        life.say(textAt(request.params, 'sessionId'), 'answered');
        return { stopReason: 'end_turn' };
      },
      'session/resume': () => ({}),
      'session/close': () => ({}),
      'session/delete': () => ({}),
      ...options.handlers,
    },
  });
  await stage.client.prompt(stage.sessionId, 'asked');
  return stage;
}

/** What the log has of updates: texts, and the ids of tool calls. */
async function logOf({ store }: Sidecar, sessionId: string): Promise<unknown[]> {
  const { stdout } = await runCommand(['events', sessionId, '--store', store, '--json']);
  return stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { readonly type: string; readonly payload: object })
    .filter(({ type }) => type === 'update')
    .map(({ payload }) => at(payload, 'content', 'text') ?? at(payload, 'toolCallId'));
}

async function logged(sidecar: Sidecar, sessionId: string, last: string): Promise<unknown[]> {
  let log: unknown[] = [];
  await waitFor(
    () => `${last} to be the last of ${JSON.stringify(log)}`,
    async () => {
      log = await logOf(sidecar, sessionId);
      return log.at(-1) === last;
    },
  );
  return log;
}

async function dropped({ wsUrl }: Sidecar, cause: string): Promise<number | undefined> {
  const { samples } = await scrape(wsUrl);
  return samples.get(`acp_sidecar_messages_dropped_total{cause="${cause}"}`);
}

async function shown(client: RawClient, sessionId: string): Promise<unknown[]> {
  await client.load(sessionId);
  return client
    .updates(sessionId)
    .map(({ message }) => at(updateOf(message), 'content', 'text') ?? at(updateOf(message), 'toolCallId'));
}

/** The process ends, and the sidecar knows. */
async function ends(life: AgentLife, { wsUrl }: Sidecar): Promise<void> {
  life.exit(1);
  await waitFor('the agent to be gone', async () => {
    const { samples } = await scrape(wsUrl);
    return samples.get('acp_sidecar_agent_up') === 0;
  });
}

describe('late updates', () => {
  it('[EV14] of a closed session are in its log, and it is bound again only by the next prompt', async () => {
    const { client, life, sidecar, sessionId, agentSessionId, join } = await stageOf();
    await client.request('session/close', { sessionId });
    await life.saw('session/close');
    for (const text of ['one ', 'two ', 'three']) life.say(agentSessionId, text);
    done(life, agentSessionId, 'late');
    expect(await logged(sidecar, sessionId, 'late')).toEqual(['answered', 'one two three', 'late']);
    expect(await shown(await join(), sessionId)).toEqual(['asked', 'answered', 'one two three', 'late']);
    expect(life.received.some(({ message }) => message.method === 'session/resume')).toBe(false);
    await client.prompt(sessionId, 'again');
    await life.saw('session/resume');
    done(life, agentSessionId, 'live');
    expect((await logged(sidecar, sessionId, 'live')).slice(3)).toEqual(['answered', 'live']);
  });

  it('[EV14] of a closed session go to it, not to the one that was used last', async () => {
    const { client, life, sidecar, sessionId, agentSessionId } = await stageOf();
    await client.request('session/close', { sessionId });
    await life.saw('session/close');
    const other = await client.newSession();
    done(life, agentSessionId, 'late');
    await logged(sidecar, sessionId, 'late');
    expect(await shown(client, other)).toEqual([]);
  });

  it('[EV14] of a closed session: the progress of a tool call is written when the agent exits', async () => {
    const { client, life, sidecar, sessionId, agentSessionId } = await stageOf();
    await client.request('session/close', { sessionId });
    await life.saw('session/close');
    life.update(agentSessionId, { sessionUpdate: 'tool_call', toolCallId: 'open', title: 'T', status: 'in_progress' });
    life.update(agentSessionId, { sessionUpdate: 'tool_call_update', toolCallId: 'open', title: 'half way' });
    await logged(sidecar, sessionId, 'open');
    life.exit(1);
    await waitFor('its progress', async () => (await logOf(sidecar, sessionId)).join(' ') === 'answered open open');
  });

  it('[EV14] [AG4] under the id before a new binding are kept, what is replayed there is not', async () => {
    const refuse = (request: object, life: AgentLife): void => life.fail(request, -1, 'no');
    const { client, life, agent, sidecar, sessionId, agentSessionId } = await stageOf({
      handlers: { 'session/resume': refuse, 'session/load': refuse },
    });
    await ends(life, sidecar);
    await client.prompt(sessionId, 'more');
    const second = await agent.life(1);
    done(second, agentSessionId, 'late');
    expect(await logged(sidecar, sessionId, 'late')).toContain('late');
    for (const text of ['asked', 'more']) {
      second.update(agentSessionId, { sessionUpdate: 'user_message_chunk', content: { type: 'text', text } });
      second.say(agentSessionId, 'answered');
    }
    await waitFor('the replay to be counted', async () => (await dropped(sidecar, 'agent_replay')) === 4);
    second.say(agentSessionId, ', new words');
    done(second, agentSessionId, 'later');
    const log = await logged(sidecar, sessionId, 'later');
    // The last that matched goes with the first that does not.
    expect(log.slice(log.indexOf('late'))).toEqual(['late', 'answered, new words', 'later']);
  });

  it('[EV14] [AG4] the rest of a replay whose restore failed in the middle is not kept', async () => {
    const { client, life, agent, sidecar, sessionId, agentSessionId } = await stageOf({
      handlers: {
        'session/resume': (request, at) => at.fail(request, -1, 'no'),
        'session/load': (request, at) => {
          at.update('agent-session-1', { sessionUpdate: 'plan', entries: [] });
          at.fail(request, -1, 'it broke');
          at.say('agent-session-1', 'answered');
          done(at, 'agent-session-1', 'replayed');
        },
      },
    });
    await ends(life, sidecar);
    await client.prompt(sessionId, 'more');
    const second = await agent.life(1);
    expect(await dropped(sidecar, 'agent_replay')).toBe(3);
    await waitFor('something late to be kept', async () => {
      done(second, agentSessionId, 'late');
      return (await logOf(sidecar, sessionId)).includes('late');
    });
    expect((await logOf(sidecar, sessionId)).filter((id) => id !== 'late')).toEqual(['answered', 'answered']);
  });

  it('[EV14] [SS3] of a deleted session are counted and in no log', async () => {
    const { client, life, sidecar, sessionId, agentSessionId } = await stageOf();
    const other = await client.newSession();
    await client.request('session/delete', { sessionId });
    done(life, agentSessionId, 'late');
    await waitFor('it to be counted', async () => (await dropped(sidecar, 'agent_deleted_session')) === 1);
    // A later life of the agent, in which nobody has told anything of it.
    await ends(life, sidecar);
    await client.prompt(other, 'go');
    expect(await shown(client, other)).toEqual(['answered', 'go', 'answered']);
  });

  it('[EV14] [SS3] in a later life of the agent go to the session that was bound to the id, or nowhere', async () => {
    const { client, life, agent, sidecar, sessionId, agentSessionId } = await stageOf();
    const gone = await client.newSession();
    const other = await client.newSession();
    await client.request('session/delete', { sessionId: gone });
    await ends(life, sidecar);
    await client.prompt(other, 'go');
    const second = await agent.life(1);
    done(second, agentSessionId, 'late');
    done(second, 'agent-session-2', 'of nobody');
    expect(await logged(sidecar, sessionId, 'late')).toEqual(['answered', 'late']);
    await waitFor('the other to be counted', async () => (await dropped(sidecar, 'agent_deleted_session')) === 1);
    expect(await logOf(sidecar, other)).toEqual(['answered']);
  });
});
