/** `acp-sidecar status`: what the server of a store does. */
import { askServer } from '../control/control-client.ts';
import { exitCode } from './exit-code.ts';
import { flushed, printTable, printText, printWire } from './read-store.ts';

/** Resolves to the exit code: 1 when there is no server. */
export async function printStatus(storeDir: string, json: boolean): Promise<number> {
  let answer = '';
  const there = await askServer(storeDir, { command: 'status' }, (line) => (answer = line));
  if (!there) {
    if (json) printWire('{"running":false}');
    else printText(`no sidecar runs on ${storeDir}`);
  } else if (json) printWire(Buffer.from(answer, 'utf8').toString('latin1'));
  else {
    const facts = JSON.parse(answer) as Record<string, unknown>;
    printTable(Object.entries(facts).map(([name, value]) => [name, textOf(value)]));
  }
  await flushed();
  return exitCode(there ? 'ok' : 'failure');
}

function textOf(value: unknown): string {
  if (Array.isArray(value)) return value.join(' ');
  return typeof value === 'string' ? value : JSON.stringify(value);
}
