/** Who asks the server something over its control socket may go away at any moment. */
import { connect } from 'node:net';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { testScope } from '../support/scope.ts';
import { runCommand } from '../support/sidecar.ts';
import { setStage } from '../support/stage.ts';

/** Writes and leaves, before an answer can be read. */
function hitAndRun(path: string, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect(path, () => {
      socket.write(text, () => socket.destroy());
    });
    socket.once('error', reject);
    socket.once('close', () => resolve());
  });
}

it('[ST5] a command that goes away before its answer costs the server nothing', async () => {
  const stage = await setStage(testScope());
  const { sidecar } = stage;
  const turn = await stage.turn();
  const path = join(sidecar.store, 'control.sock');
  const texts = ['{"command":"status"}\n', 'junk\n', '\n\n', '{"command":"nope"}\n', '{"comm'];
  for (let n = 0; n < 100; n++) {
    // While it stands still nobody reads, and all of it comes at once.
    const { pid } = sidecar;
    if (n % 10 === 0) process.kill(pid, 'SIGSTOP');
    await Promise.all(texts.map((text) => hitAndRun(path, text)));
    if (n % 10 === 0) process.kill(pid, 'SIGCONT');
  }
  expect(await runCommand(['status', '--store', sidecar.store])).toMatchObject({ code: 0 });
  expect((await turn.end()).message.error).toBeUndefined();
});
