import { describe, expect, it } from 'vitest';
import { at } from './json.ts';
import { RawClient } from './raw-client.ts';
import { RecordedAgent } from './recorded-agent.ts';
import { livesWithNewSession } from './recording.ts';
import { NOT_PLAYED, RecordingDriver } from './recording-driver.ts';
import { testScope } from './scope.ts';

/** The two halves of the recordings, played against each other with nothing in between. */
describe('a recorded agent and its recorded client', () => {
  it.each(livesWithNewSession())('play $name to its end, in recorded order', async (life) => {
    const scope = testScope();
    const agent = await RecordedAgent.listen(scope, life);
    const client = RawClient.direct(scope, agent.command);
    await new RecordingDriver(life, agent, client).play();
    const written = agent.happened.filter(({ index }) => index !== undefined).map(({ index }) => index ?? 0);
    const made = agent.exchanges
      .filter(({ method }) => method === 'session/new')
      .map(({ responseAt = -1 }) => at(life.entries[responseAt]?.message, 'result', 'sessionId'));
    const played = agent.exchanges.filter(({ method, sessionId = 'no-such-session' }) => {
      return !NOT_PLAYED.has(method) && (made.includes(sessionId) || sessionId === 'no-such-session');
    });
    const steps = played.flatMap((exchange) => exchange.steps.filter(({ kind }) => kind === 'emit'));
    expect(written).toEqual(steps.map(({ index }) => index).sort((a, b) => a - b));
    const sent = agent.happened.filter(({ dir }) => dir === 'out').map(({ text }) => text);
    expect(client.received.map(({ text }) => text)).toEqual(sent);
  });
});
