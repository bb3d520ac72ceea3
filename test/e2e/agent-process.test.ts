/** The agent's process group: gone on every way out, and its end harms no client. */
import { describe, expect, it } from 'vitest';
import { at } from '../support/json.ts';
import { testScope } from '../support/scope.ts';
import { processesMarked } from '../support/sidecar.ts';
import { type Stage, setStage } from '../support/stage.ts';
import { waitFor } from '../support/wait-for.ts';

/** The agent with a child process of its own. */
async function withChild(stage: Stage): Promise<void> {
  stage.life.startChild();
  // The sidecar, the agent and its guard are there already.
  await waitFor("the agent's child", () => stage.sidecar.processes().length >= 4);
}

async function expectGone(stage: Stage, keep: readonly number[] = []): Promise<void> {
  await waitFor(
    () => `the agent's group to be gone; there are ${stage.sidecar.processes().join(' ')}`,
    () => stage.sidecar.processes().every((pid) => keep.includes(pid)),
  );
}

describe('the whole group is gone', () => {
  it('[AG2] after SIGTERM of the sidecar', async () => {
    const stage = await setStage(testScope());
    await withChild(stage);
    expect((await stage.sidecar.stop()).code).toBe(0);
    await expectGone(stage);
  });

  it('[AG2] after SIGTERM when the agent ignores the end of its stdin and SIGTERM', async () => {
    const stage = await setStage(testScope(), { args: ['--drain', '200ms'] });
    await withChild(stage);
    stage.life.beStubborn();
    await stage.turn();
    expect((await stage.sidecar.stop()).code).toBe(0);
    expect(stage.life.closed || stage.life.stdinEnded).toBe(true);
    await expectGone(stage);
  }, 40_000);

  it('[AG2] when the agent exits by itself and leaves a child', async () => {
    const stage = await setStage(testScope());
    await withChild(stage);
    stage.life.exit(7);
    await expectGone(stage, [stage.sidecar.pid]);
    expect(processesMarked('ACP_TEST_MARK=no-such-mark')).toEqual([]);
  });

  it('[AG2] when the agent is killed', async () => {
    const stage = await setStage(testScope());
    await withChild(stage);
    process.kill(stage.life.pid, 'SIGKILL');
    await expectGone(stage, [stage.sidecar.pid]);
  });

  it('[AG11] after kill -9 of the sidecar, without another one, also of an agent that is stubborn', async () => {
    const stage = await setStage(testScope());
    await withChild(stage);
    stage.life.beStubborn();
    await stage.turn();
    await stage.sidecar.kill();
    await expectGone(stage);
  });

  it('[AG6] after kill -9 of the sidecar and the next start, what a stubborn agent left', async () => {
    const stage = await setStage(testScope());
    await withChild(stage);
    stage.life.beStubborn();
    await stage.turn();
    const left = stage.life.pid;
    await stage.sidecar.kill();
    await stage.sidecar.start();
    await waitFor('the old agent to be ended', () => !stage.sidecar.processes().includes(left));
  });
});

describe("the agent's end", () => {
  it('in a turn: the prompt is answered with interrupted, no client is touched, what was said is kept', async () => {
    const stage = await setStage(testScope());
    const { life, client, sessionId, agentSessionId } = stage;
    const turn = await stage.turn();
    life.say(agentSessionId, 'half a sen');
    life.exit(1);
    const { message } = await turn.answer;
    expect(at(message, 'error', 'data', 'kind')).toBe('interrupted');
    expect(client.agentText(sessionId)).toBe('half a sen');
    expect(client.closed).toBeUndefined();
    const late = await stage.join();
    await late.load(sessionId);
    expect(late.agentText(sessionId)).toBe('half a sen');
  });

  it('is followed by a new process when a client needs one', async () => {
    const stage = await setStage(testScope());
    stage.life.exit(0);
    await stage.life.until('its end', (life) => life.closed);
    // A request that meets the dying process may be told so; who asks again gets a new one.
    const sessionId = await waitFor('a session', () => stage.client.newSession().catch(() => undefined));
    const second = await stage.agent.life(1);
    expect(second.received.map(({ message }) => message.method).slice(0, 2)).toEqual(['initialize', 'session/new']);
    expect(sessionId).not.toBe(stage.sessionId);
  });
});

it("the agent's stderr goes to the log", async () => {
  const stage = await setStage(testScope());
  stage.life.stderr('something the agent complains about\n');
  await waitFor('the line in the log', () => stage.sidecar.stderr.includes('something the agent complains about'));
  expect(stage.sidecar.stdout).toBe(`${stage.sidecar.readyLine}\n`);
});
