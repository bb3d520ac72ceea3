/** Damage in a log that opening the session did not see. */
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { faultyStoreProgram } from '../support/faulty-store.ts';
import { at } from '../support/json.ts';
import { openRoom } from '../support/room.ts';
import { testScope } from '../support/scope.ts';
import { tempDir } from '../support/temp-dir.ts';

it('[EV8] a load whose replay meets damage is answered with it, and others go on', async () => {
  const scope = testScope();
  const gapFile = join(tempDir(scope), 'gap');
  const program = await faultyStoreProgram();
  const room = await openRoom(scope, { program, env: { STORE_GAP_FILE: gapFile } });
  const driver = await room.enter();
  const sessionId = await driver.newSession();
  const prompt = driver.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'go' }] });
  const asked = await room.life().saw('session/prompt');
  // More than is kept in memory for clients at the tip.
  for (let n = 0; n < 4; n++) {
    room.life().update('agent-session-1', { sessionUpdate: 'plan', entries: [], n, pad: 'x'.repeat(100_000) });
    await driver.until(`update ${n}`, ({ message }) => at(message, 'params', 'update', 'n') === n);
  }
  writeFileSync(gapFile, '2');
  const reader = await room.enter({});
  const other = await room.enter();
  for (const client of [reader, other]) {
    const { message } = await client.ask('session/load', { sessionId, cwd: '/', mcpServers: [] });
    expect(message.error).toMatchObject({ code: -32603, data: { kind: 'log_damaged', seq: 2 } });
    expect(message.result).toBeUndefined();
  }
  // Who needs nothing of it is not disturbed, and the turn is answered.
  room.life().say('agent-session-1', 'done');
  room.life().reply(asked.message, { stopReason: 'end_turn' });
  expect(at((await prompt).message, 'result', 'stopReason')).toBe('end_turn');
  expect(driver.agentText(sessionId)).toBe('done');
  rmSync(gapFile);
});
