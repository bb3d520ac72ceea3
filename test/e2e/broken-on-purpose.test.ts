/**
 * The sidecar with one classic fault each, built from its own source. The checks that guard against it must fail; a check
 * that passes here guards against nothing.
 */
import { describe, expect, it } from 'vitest';
import { attachWhileStreaming } from '../support/attach-check.ts';
import { killAgainAndAgain } from '../support/crash-check.ts';
import { buildWithFault, type Fault } from '../support/faulty-build.ts';
import { testScope } from '../support/scope.ts';

/** The replay is read up to the tip, and only in a later tick the client joins those who are served live. */
const REGISTER_AFTER_READING: Fault = {
  name: 'register after reading',
  file: 'proxy/client-methods/attach.ts',
  replace: [
    [
      "attachment.owe({ ...tip, what: 'answer', wire: responseText(message.id, result), replayOf: message.id });",
      `attachment.owe({ ...tip, what: 'answer', wire: responseText(message.id, result), replayOf: message.id });
       setTimeout(() => { attachment.position = session.order.tip; connection.kick(); }, 2);`,
    ],
  ],
};

/** Chunk cursors count what was sent to whomever, instead of being the place in the text. */
const SECOND_COUNTER: Fault = {
  name: 'a second unlocked counter',
  file: 'proxy/session/pump.ts',
  replace: [
    [
      'const eventId = chunkId(envelope.logId, seq, source.boot, to);',
      `const counter = globalThis as { sent?: number };
       counter.sent = (counter.sent ?? 0) + to - from;
       const eventId = chunkId(envelope.logId, seq, source.boot, counter.sent);`,
    ],
  ],
};

/** Everybody is told before the disk has it. */
const PUBLISH_BEFORE_APPEND: Fault = {
  name: 'publish before append',
  file: 'storage/group-commit.ts',
  replace: [
    [
      'committing = this.#log.commit(taken.batch);',
      `const slow = globalThis as { last?: Promise<unknown> };
       const log = this.#log;
       const batch = { ...taken.batch, appends: taken.batch.appends.map((append) => {
         return { ...append, records: append.records.map((record) => Buffer.from(record)) };
       }) };
       slow.last = (slow.last ?? Promise.resolve())
         .then(() => new Promise((resolve) => setTimeout(resolve, 10)))
         .then(() => log.commit(batch));
       committing = Promise.resolve({ outcome: 'committed' });`,
    ],
  ],
};

describe('a sidecar that is broken on purpose is found out', () => {
  it.each([REGISTER_AFTER_READING, SECOND_COUNTER])('$name', async (fault) => {
    const program = await buildWithFault(fault);
    // It ends at the first that sees it. How many of them do depends on how fast the machine streams.
    const check = { rounds: 30, perRound: 15, chunks: 50_000, toolEvery: 0, program };
    await expect(attachWhileStreaming(testScope(), check)).rejects.toThrow(
      /differs at|characters|cursor|end of the text/,
    );
  });

  it('publish before append', async () => {
    const program = await buildWithFault(PUBLISH_BEFORE_APPEND);
    await expect(killAgainAndAgain(testScope(), 20, program)).rejects.toThrow(/never lost|was shown|No such session/);
  });

  it('the same checks pass on the build without a fault', async () => {
    const program = await buildWithFault({ name: 'none', file: 'proxy/cli/main.ts', replace: [] });
    await attachWhileStreaming(testScope(), { rounds: 1, perRound: 15, chunks: 50_000, toolEvery: 0, program });
    await killAgainAndAgain(testScope(), 2, program);
  });
});
