/** `acp-sidecar status`: what the server of a store does; without one, what the daemons of `run` do. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { askServer } from '../control/control-client.ts';
import { exitCode } from './exit-code.ts';
import { flushed, printTable, printText, printWire } from './read-store.ts';

/** Resolves to the exit code: 1 when there is no server. */
export async function printStatus(storeDir: string, json: boolean): Promise<number> {
  const answers = await statusOf([storeDir]);
  if (answers.length === 0) answers.push(...(await statusOf(runStores(storeDir))));
  if (answers.length === 0) {
    if (json) printWire('{"running":false}');
    else printText(`no sidecar runs on ${storeDir}`);
  }
  for (const [i, answer] of answers.entries()) {
    if (json) printWire(Buffer.from(answer, 'utf8').toString('latin1'));
    else {
      if (i > 0) printText('');
      const facts = JSON.parse(answer) as Record<string, unknown>;
      printTable(Object.entries(facts).map(([name, value]) => [name, textOf(value)]));
    }
  }
  await flushed();
  return exitCode(answers.length > 0 ? 'ok' : 'failure');
}

/** The stores that `run` makes below the one that is the default: one for each agent. */
export function runStores(storeDir: string): string[] {
  const dir = join(storeDir, 'run');
  return existsSync(dir) ? readdirSync(dir).map((name) => join(dir, name)) : [];
}

/** The answers of the servers that run. */
export async function statusOf(storeDirs: readonly string[]): Promise<string[]> {
  const answers: string[] = [];
  for (const storeDir of storeDirs) await askServer(storeDir, { command: 'status' }, (line) => answers.push(line));
  return answers;
}

function textOf(value: unknown): string {
  if (Array.isArray(value)) return value.join(' ');
  return typeof value === 'string' ? value : JSON.stringify(value);
}
