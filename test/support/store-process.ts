import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Scope } from './scope.ts';
import { ROOT } from './scripted-agent.ts';

/** A running `store-program`. */
export interface StoreProcess {
  readonly child: ChildProcess;
  /** Every line so far, parsed. */
  readonly lines: unknown[];
  /** Resolves with the first line. */
  first(): Promise<unknown>;
  /** Kills it with SIGKILL and waits until it is gone and its output is read. */
  kill(): Promise<void>;
}

export function startStoreProcess(scope: Scope, args: readonly string[]): StoreProcess {
  const program = join(ROOT, 'dist/test/support/store-program.js');
  const child = spawn(process.execPath, [program, ...args], { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines: unknown[] = [];
  let wake: ((value: unknown) => void)[] = [];
  const reader = createInterface({ input: child.stdout });
  reader.on('line', (line) => {
    lines.push(JSON.parse(line));
    for (const resolve of wake) resolve(lines[0]);
    wake = [];
  });
  const closed = Promise.all([once(child, 'exit'), once(reader, 'close')]);
  const kill = async (): Promise<void> => {
    child.kill('SIGKILL');
    await closed;
  };
  scope.defer(kill);
  return {
    child,
    lines,
    first: () =>
      new Promise((resolve, reject) => {
        if (lines.length > 0) resolve(lines[0]);
        else wake.push(resolve);
        child.once('exit', (code) => reject(new Error(`the store process ended with ${code} before it said anything`)));
      }),
    kill,
  };
}
