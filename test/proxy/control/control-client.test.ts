/** What the CLI does with a server that takes its time, or that does not answer at all. */
import { createServer } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { describe, expect, it } from 'vitest';
import { CommandError } from '../../../proxy/cli/exit-code.ts';
import { askServer } from '../../../proxy/control/control-client.ts';
import type { ControlRequest } from '../../../proxy/control/control-protocol.ts';
import { type Scope, testScope } from '../../support/scope.ts';
import { setStage } from '../../support/stage.ts';
import { runCommand } from '../../support/sidecar.ts';
import { tempDir } from '../../support/temp-dir.ts';

const SILENCE_MS = 100;

/** A store whose control socket answers as `answer` says. */
async function storeOf(
  scope: Scope,
  answer: (request: ControlRequest, reply: (value: object) => void) => void,
): Promise<string> {
  const store = tempDir(scope);
  const server = createServer((socket) => {
    scope.defer(() => socket.destroy());
    socket.on('error', () => undefined);
    createInterface({ input: socket }).on('line', (line) => {
      answer(JSON.parse(line) as ControlRequest, (value) => socket.write(`${JSON.stringify(value)}\n`));
    });
  });
  await new Promise<void>((resolve) => server.listen(join(store, 'control.sock'), resolve));
  scope.defer(() => server.close());
  return store;
}

describe('a command to the server', () => {
  it('that takes long is waited for, when the server answers others meanwhile', async () => {
    let finish: () => void = () => undefined;
    const asked: string[] = [];
    const store = await storeOf(testScope(), ({ command }, reply) => {
      asked.push(command);
      if (command === 'backup') finish = () => reply({ done: true });
      else {
        reply({ line: '{}' });
        reply({ done: true });
        // It was asked whether it lives: the backup ends a good while after that.
        setTimeout(() => finish(), 3 * SILENCE_MS);
      }
    });
    expect(await askServer(store, { command: 'backup', dir: '/b' }, () => undefined, SILENCE_MS)).toBe(true);
    expect(asked).toEqual(['backup', 'status']);
  });

  it('that a server of any version answers with words between is not given up', async () => {
    const store = await storeOf(testScope(), (_, reply) => {
      reply({ line: 'one' });
      setTimeout(() => reply({ done: true }), 3 * SILENCE_MS);
    });
    const lines: string[] = [];
    expect(await askServer(store, { command: 'status' }, (line) => lines.push(line), SILENCE_MS)).toBe(true);
    expect(lines).toEqual(['one']);
  });

  it('[ER3] that nobody answers is given up', async () => {
    const store = await storeOf(testScope(), () => undefined);
    const error = await askServer(store, { command: 'status' }, () => undefined, SILENCE_MS).catch((e: unknown) => e);
    expect(error).toBeInstanceOf(CommandError);
    expect(String(error)).toContain(`the server of ${store} does not answer`);
  });

  it('[ER3] to a process that is stopped: status and prune say so and end', async () => {
    const { sidecar } = await setStage(testScope());
    const { pid, store } = sidecar;
    process.kill(pid, 'SIGSTOP');
    try {
      for (const args of [['status'], ['prune', '--retain', '1', '--dry-run']]) {
        const since = performance.now();
        const { code, stderr } = await runCommand([...args, '--store', store]);
        expect([args[0], code, stderr]).toEqual([
          args[0],
          1,
          expect.stringContaining(`(process ${pid}) does not answer`),
        ]);
        expect(performance.now() - since).toBeLessThan(20_000);
      }
    } finally {
      process.kill(pid, 'SIGCONT');
    }
  }, 60_000);
});
