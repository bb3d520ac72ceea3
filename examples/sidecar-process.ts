/** A sidecar in front of the example agent, for the examples. */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

export const SIDECAR = join(import.meta.dirname, '../../bin/acp-sidecar.cjs');
export const AGENT = [process.execPath, join(import.meta.dirname, 'agent.js')];

/** Resolves when it accepts connections. `stop` ends it and takes its store away. */
export async function startSidecar(): Promise<{ url: string; stop: () => Promise<void> }> {
  const store = mkdtempSync(join(tmpdir(), 'acp-sidecar-example-'));
  const options = ['--store', store, '--listen', '127.0.0.1:0', '--log-level', 'warn'];
  const child = spawn(process.execPath, [SIDECAR, 'serve', ...options, '--', ...AGENT], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  process.once('exit', () => child.kill());
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const url = await new Promise<string>((resolve, reject) => {
    createInterface(child.stdout).once('line', (line) => {
      resolve((JSON.parse(line) as { endpoints: [string] }).endpoints[0]);
    });
    child.once('exit', (code) => reject(new Error(`the sidecar ended with exit code ${code}`)));
  });
  const stop = async (): Promise<void> => {
    child.kill('SIGTERM');
    await exited;
    rmSync(store, { recursive: true, force: true });
  };
  return { url, stop };
}

/** Runs an example: exits 0 when it gives true, 1 when not, when it fails, and when it takes too long. */
export async function runExample(example: () => Promise<boolean>, limitMs = 30_000): Promise<void> {
  const limit = setTimeout(() => {
    process.stderr.write(`not done after ${limitMs / 1000} s\n`);
    process.exit(1);
  }, limitMs);
  try {
    process.exitCode = (await example()) ? 0 : 1;
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
    process.exitCode = 1;
  }
  clearTimeout(limit);
}
