import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { describe, expect, it } from 'vitest';
import { groupGone, groupRuns } from '../../../proxy/agent/process-facts.ts';

const PROGRAM = join(import.meta.dirname, 'ways-out-program.mjs');

interface Running {
  readonly child: ChildProcess;
  /** Pid and group of the agent. */
  readonly pgid: number;
  nextLine(): Promise<string>;
  readonly ended: Promise<{ code: number | null; stderr: string }>;
}

async function start(way: string): Promise<Running> {
  const child = spawn(process.execPath, [PROGRAM, way], { stdio: ['ignore', 'pipe', 'pipe'] });
  let stderr = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  const nextLine = async (): Promise<string> => String((await lines.next()).value);
  const ended = new Promise<{ code: number | null; stderr: string }>((resolve) => {
    child.once('close', (code) => resolve({ code, stderr }));
  });
  return { child, pgid: Number(await nextLine()), nextLine, ended };
}

describe('no way out leaves an agent behind', () => {
  it.each([
    ['exit', 9, ''],
    ['throw', 1, 'a bug'],
    ['reject', 1, 'a bug'],
  ])('%s', async (way, code, message) => {
    const running = await start(way);
    const ended = await running.ended;
    expect(ended.code).toBe(code);
    expect(ended.stderr).toContain(message);
    expect(await groupGone(running.pgid, 5000)).toBe(true);
  });

  it.each([
    ['SIGTERM', 143],
    ['SIGINT', 130],
    ['SIGHUP', 129],
  ] as const)('%s before the server listens for it', async (signal, code) => {
    const running = await start('signal');
    expect(groupRuns(running.pgid)).toBe(true);
    running.child.kill(signal);
    expect((await running.ended).code).toBe(code);
    expect(await groupGone(running.pgid, 5000)).toBe(true);
  });

  it("the first signal is the server's to handle, the second ends it", async () => {
    const running = await start('drain');
    running.child.kill('SIGTERM');
    expect(await running.nextLine()).toBe('draining');
    expect(groupRuns(running.pgid)).toBe(true);
    running.child.kill('SIGTERM');
    expect((await running.ended).code).toBe(143);
    expect(await groupGone(running.pgid, 5000)).toBe(true);
  });
});
