/** The lives of an agent: one ends, the next begins with the next prompt. */
import { expect } from 'vitest';
import { at, type Received } from './json.ts';
import type { AgentLife } from './scripted-agent.ts';
import type { Stage } from './stage.ts';

/** One turn in which the agent says something. */
export async function oneTurn(stage: Stage, text = 'first question', answer = 'first answer'): Promise<void> {
  const turn = await stage.turn(text);
  stage.life.say(stage.agentSessionId, answer);
  await turn.end();
}

/** Ends the agent and waits until the sidecar knows it: a prompt sent before would be lost with the process. */
export async function endAgent(stage: Stage, life: AgentLife = stage.life): Promise<void> {
  const watcher = await stage.join(true);
  await watcher.resume(stage.sessionId);
  life.exit(0);
  await watcher.until(
    'the end of the agent',
    ({ message }) => message.method === '_sidecar/agent' && at(message, 'params', 'state') === 'exited',
  );
  watcher.close();
}

export async function nextLife(stage: Stage, n = 1): Promise<AgentLife> {
  return stage.agent.life(n);
}

/** Sends a prompt and gives what the agent process `life` got as its prompt. */
export async function promptTo(
  stage: Stage,
  n: number,
  text: string,
): Promise<{ received: Received; life: AgentLife }> {
  const answer = stage.client.ask('session/prompt', {
    sessionId: stage.sessionId,
    prompt: [{ type: 'text', text }],
  });
  const life = await nextLife(stage, n);
  const received = await life.saw('session/prompt');
  life.reply(received.message, { stopReason: 'end_turn' });
  expect((await answer).message.error).toBeUndefined();
  return { received, life };
}

/** The methods of the requests that an agent process got. */
export function methods(life: AgentLife): (string | undefined)[] {
  return life.received.map(({ message }) => message.method).filter((method) => method !== undefined);
}

export async function eventsOf(stage: Stage): Promise<{ type: string; payload: Record<string, unknown> }[]> {
  const client = await stage.join(true);
  const { sessionId } = stage;
  const result = (await client.request('_sidecar/events', { sessionId, limit: 1000 })) as { events: never[] };
  client.close();
  return result.events;
}
