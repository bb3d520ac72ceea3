/** Damage in a log: at the byte level, and such that opening the session did not see. */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { faultyStoreProgram } from '../support/faulty-store.ts';
import { at } from '../support/json.ts';
import { openRoom } from '../support/room.ts';
import { testScope } from '../support/scope.ts';
import { runCommand } from '../support/sidecar.ts';
import { setStage } from '../support/stage.ts';
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

it('[EV8] [ST3] one byte of a text that is not what was written: the session is refused, and only that', async () => {
  const stage = await setStage(testScope());
  const { client, sidecar, sessionId } = stage;
  const turn = await stage.turn('go');
  stage.life.say(stage.agentSessionId, 'UNIQUE-MARKER');
  await turn.end();
  const other = await client.newSession();
  await sidecar.stop();
  const file = join(sidecar.store, 'data.mdb');
  const data = readFileSync(file);
  for (let at = data.indexOf('UNIQUE-MARKER'); at >= 0; at = data.indexOf('UNIQUE-MARKER', at + 1)) data[at] = 0x56;
  writeFileSync(file, data);
  await sidecar.start();
  const back = await stage.join();
  for (const method of ['session/load', 'session/resume']) {
    const { message } = await back.ask(method, { sessionId, cwd: '/', mcpServers: [] });
    expect(message.error).toMatchObject({ code: -32603, data: { kind: 'log_damaged', sessionId } });
  }
  const prompted = await back.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'on' }] });
  expect(prompted.message.error).toMatchObject({ data: { kind: 'log_damaged' } });
  expect(back.updates(sessionId)).toEqual([]);
  await back.load(other);
  for (const command of ['show', 'repair']) {
    expect(await runCommand([command, sessionId, '--store', sidecar.store])).toMatchObject({ code: 4 });
  }
});
