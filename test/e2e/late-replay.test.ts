/** What an agent replays while it restores a session is in the log; what only looks like it is not lost. */
import { describe, expect, it } from 'vitest';
import { endAgent, eventsOf, nextLife, oneTurn } from '../support/agent-lives.ts';
import { at, textAt } from '../support/json.ts';
import { testScope } from '../support/scope.ts';
import type { AgentHandler, AgentLife } from '../support/scripted-agent.ts';
import { setStage, type Stage } from '../support/stage.ts';

const LOAD = { loadSession: true };

const user = (text: string): object => ({ sessionUpdate: 'user_message_chunk', content: { type: 'text', text } });
const agent = (text: string): object => ({ sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } });

function typesOf(events: readonly { type: string }[]): string[] {
  return events.map(({ type }) => type);
}

/** Sends a prompt, which the agent process that is next, or the given one, gets. */
async function nextPrompt(
  stage: Stage,
  text: string,
  known?: AgentLife,
): Promise<{ readonly life: AgentLife; end: () => Promise<void> }> {
  const seen = known?.received.filter(({ message }) => message.method === 'session/prompt').length ?? 0;
  const answer = stage.client.prompt(stage.sessionId, text);
  const life = known ?? (await nextLife(stage));
  const { message } = await life.saw('session/prompt', seen);
  return {
    life,
    end: async () => {
      life.reply(message, { stopReason: 'end_turn' });
      await answer;
    },
  };
}

/** A reply to `session/load` after the first of these updates; each comes after its pause. */
function slowly(updates: readonly object[], pausesMs: readonly number[]): AgentHandler {
  return (request, life) => {
    const sessionId = textAt(request, 'params', 'sessionId');
    let due = 0;
    for (const [n, update] of updates.entries()) {
      due += pausesMs[n] ?? 0;
      if (due === 0) life.update(sessionId, update);
      else setTimeout(() => life.update(sessionId, update), due);
    }
    life.reply(request, {});
    return undefined;
  };
}

/** A reply to `session/load` that replays, in one of the ways that agents do it. */
function replays(how: 'early' | 'late' | 'twice' | 'after'): AgentHandler {
  return (request, life) => {
    const sessionId = textAt(request, 'params', 'sessionId');
    const tell = (round: number): void => {
      const id = `other-${how}-${life.pid}-${round}`;
      const say = (sessionUpdate: string, text: string): void =>
        life.update(sessionId, { sessionUpdate, content: { type: 'text', text }, messageId: id });
      say('user_message_chunk', 'first ques');
      say('user_message_chunk', 'tion');
      say('agent_thought_chunk', 'hm');
      say('agent_message_chunk', 'first ');
      say('agent_message_chunk', 'answer');
    };
    if (how !== 'late' && how !== 'after') tell(0);
    if (how === 'twice') tell(1);
    if (how !== 'late') life.reply(request, {});
    if (how === 'after') setTimeout(() => tell(0), 20);
    if (how === 'late') {
      life.reply(request, {});
      setTimeout(() => tell(0), 500);
    }
    return undefined;
  };
}

describe('a replay', () => {
  it.each(['early', 'late', 'after', 'twice'] as const)(
    '[AG4] load with a replay that comes %s: nothing of it is appended or shown',
    async (how) => {
      const handlers = { 'session/load': replays(how) };
      const stage = await setStage(testScope(), { capabilities: LOAD, handlers });
      await oneTurn(stage);
      const before = (await eventsOf(stage)).length;
      for (let n = 1; n <= (how === 'early' ? 10 : 2); n++) {
        await endAgent(stage, stage.agent.lives.at(-1));
        // A request that needs the agent, and leaves no event of its own.
        const asked = stage.client.ask('_test/ping', { sessionId: stage.sessionId });
        const life = await nextLife(stage, n);
        const { message } = await life.saw('_test/ping');
        life.reply(message, {});
        await asked;
        if (how === 'late' || how === 'after') await new Promise((resolve) => setTimeout(resolve, 1800));
      }
      const events = await eventsOf(stage);
      // Only that it was bound is an event.
      const grown = events.slice(before).map(({ type, payload }) => `${type} ${String(payload['how'])}`);
      expect(new Set(grown)).toEqual(new Set(['session_bound loaded']));
      expect(stage.client.agentText(stage.sessionId)).toBe('first answer');
    },
    60_000,
  );

  it('[AG4] what is new after a late beginning like the log is not lost', async () => {
    const handlers = { 'session/load': replays('early') };
    const stage = await setStage(testScope(), { capabilities: LOAD, handlers });
    await oneTurn(stage);
    await endAgent(stage);
    const answer = stage.client.ask('session/prompt', {
      sessionId: stage.sessionId,
      prompt: [{ type: 'text', text: 'first question' }],
    });
    const life = await nextLife(stage);
    const { message } = await life.saw('session/prompt');
    const say = (sessionUpdate: string, text: string): void =>
      life.update(stage.agentSessionId, { sessionUpdate, content: { type: 'text', text } });
    say('user_message_chunk', 'first question');
    say('agent_message_chunk', 'something else');
    life.reply(message, { stopReason: 'end_turn' });
    await answer;
    expect(stage.client.agentText(stage.sessionId)).toBe('first answersomething else');
    const fresh = await stage.join();
    await fresh.load(stage.sessionId);
    expect(fresh.updates(stage.sessionId).filter(({ text }) => text.includes('user_message_chunk'))).toHaveLength(2);
  });

  it.each([
    ['begins late and pauses', [500, 100, 100, 100]],
    ['pauses behind the words of the user', [0, 200, 0, 200]],
  ])('[AG4] that %s is waited for', async (_name, pauses) => {
    const told = [user('first question'), agent('first answer'), user('second question'), agent('second answer')];
    const stage = await setStage(testScope(), {
      capabilities: LOAD,
      handlers: { 'session/load': slowly(told, pauses) },
    });
    await oneTurn(stage);
    await oneTurn(stage, 'second question', 'second answer');
    await endAgent(stage);
    const { life, end } = await nextPrompt(stage, 'third question');
    life.say(stage.agentSessionId, 'third answer');
    await end();
    expect(stage.client.agentText(stage.sessionId)).toBe('first answersecond answerthird answer');
    expect(typesOf(await eventsOf(stage)).filter((type) => type === 'update')).toHaveLength(3);
  });

  it('[AG4] that comes behind a turn and has that turn too', async () => {
    const stage = await setStage(testScope(), { capabilities: LOAD, handlers: { 'session/load': replays('early') } });
    await oneTurn(stage);
    await endAgent(stage);
    const { life, end } = await nextPrompt(stage, 'second question');
    life.say(stage.agentSessionId, 'second answer');
    await end();
    const before = (await eventsOf(stage)).length;
    for (const update of [
      user('first question'),
      agent('first answer'),
      user('second question'),
      agent('second answer'),
    ])
      life.update(stage.agentSessionId, update);
    // When this is answered the sidecar has all of it.
    const asked = stage.client.ask('_test/ping', { sessionId: stage.sessionId });
    life.reply((await life.saw('_test/ping')).message, {});
    await asked;
    const third = await nextPrompt(stage, 'third question', life);
    life.say(stage.agentSessionId, 'third answer');
    await third.end();
    expect(stage.client.agentText(stage.sessionId)).toBe('first answersecond answerthird answer');
    const grown = typesOf((await eventsOf(stage)).slice(before));
    expect(grown).toEqual(['turn_queued', 'turn_started', 'update', 'turn_ended']);
  });

  it('[AG4] that goes on into the prompt that is running', async () => {
    const stage = await setStage(testScope(), { capabilities: LOAD, handlers: { 'session/load': replays('early') } });
    await oneTurn(stage);
    await endAgent(stage);
    const { life, end } = await nextPrompt(stage, 'second question');
    for (const update of [user('first question'), agent('first answer'), user('second question'), agent('new')])
      life.update(stage.agentSessionId, update);
    await end();
    expect(stage.client.agentText(stage.sessionId)).toBe('first answernew');
    expect(typesOf(await eventsOf(stage)).filter((type) => type === 'update')).toHaveLength(2);
  });
});

describe('an agent that echoes, and is asked what it was asked before', () => {
  it.each([
    ['the same', 'load', 'first answer'],
    ['the beginning of it', 'load', 'first'],
    ['the same and more', 'load', 'first answer, once more'],
    ['the same, resumed', 'resume', 'first answer'],
  ] as const)('[AG4] answers %s: it is not lost', async (_name, way, says) => {
    const capabilities = way === 'load' ? LOAD : { sessionCapabilities: { resume: {} } };
    const handlers = { 'session/load': replays('early'), 'session/resume': () => ({}) };
    const stage = await setStage(testScope(), { capabilities, handlers });
    await oneTurn(stage);
    await endAgent(stage);
    let life: AgentLife | undefined;
    for (let n = 0; n < 2; n++) {
      const prompt = await nextPrompt(stage, 'first question', life);
      life = prompt.life;
      for (const text of ['first ', 'question']) life.update(stage.agentSessionId, user(text));
      for (const text of [says.slice(0, 4), says.slice(4)]) life.update(stage.agentSessionId, agent(text));
      await prompt.end();
    }
    expect(stage.client.agentText(stage.sessionId)).toBe(`first answer${says}${says}`);
    const events = await eventsOf(stage);
    const texts = events.filter(({ type }) => type === 'update').map(({ payload }) => at(payload, 'content', 'text'));
    expect(texts).toEqual(['first answer', says, says]);
  });
});
