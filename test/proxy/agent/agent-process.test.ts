import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import {
  type AgentExit,
  AgentProcess,
  type AgentProcessOptions,
  endAllGroups,
} from '../../../proxy/agent/agent-process.ts';
import { groupRuns } from '../../../proxy/agent/process-facts.ts';
import { silentLogger } from '../../../proxy/log.ts';

const STUBBORN = [join(import.meta.dirname, 'stubborn-agent.mjs')];

interface Started {
  readonly agent: AgentProcess;
  text(): string;
  readonly exits: AgentExit[];
  readonly exited: Promise<AgentExit>;
  drains: number;
}

async function start(
  command: string,
  args: readonly string[],
  more: Partial<AgentProcessOptions> = {},
): Promise<Started> {
  let text = '';
  const exits: AgentExit[] = [];
  let resolveExit: (exit: AgentExit) => void = () => undefined;
  const exited = new Promise<AgentExit>((resolve) => {
    resolveExit = resolve;
  });
  const counts = { drains: 0 };
  const outcome = await AgentProcess.start({
    command,
    args,
    log: silentLogger(),
    onData: (chunk) => {
      text += chunk.latin1Slice();
    },
    onDrain: () => {
      counts.drains++;
    },
    onExit: (exit) => {
      exits.push(exit);
      resolveExit(exit);
    },
    ...more,
  });
  if (outcome.outcome === 'failed') throw new Error(outcome.message);
  return Object.assign(counts, { agent: outcome.agent, text: () => text, exits, exited });
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 5));
}

afterEach(() => endAllGroups(0));

describe('AgentProcess', () => {
  it('passes bytes both ways unchanged', async () => {
    const cat = await start('cat', []);
    const bytes = Array.from({ length: 256 }, (_, i) => String.fromCharCode(i)).join('');
    expect(cat.agent.write(bytes)).toBe(true);
    await until(() => cat.text().length === 256);
    expect(cat.text()).toBe(bytes);
    await cat.agent.stop(1000);
    expect(cat.exits).toHaveLength(1);
  });

  it('says to wait when stdin is full, and when there is room again, and loses nothing', async () => {
    const cat = await start('cat', [], { stdinBufferBytes: 100_000 });
    cat.agent.pause();
    let sent = 0;
    let goesOn = true;
    while (goesOn) {
      goesOn = cat.agent.write('x'.repeat(50_000));
      sent += 50_000;
    }
    expect(cat.drains).toBe(0);
    expect(cat.agent.stdinPendingBytes).toBeLessThanOrEqual(150_000);
    cat.agent.resume();
    await until(() => cat.drains === 1 && cat.text().length === sent);
    await cat.agent.stop(1000);
  });

  it('tells an exit once, after the last output, with the end of stderr', async () => {
    const script = 'i=0; while [ $i -lt 30 ]; do echo "line $i" >&2; i=$((i+1)); done; printf "the end"; exit 7';
    const agent = await start('sh', ['-c', script]);
    const exit = await agent.exited;
    expect(agent.text()).toBe('the end');
    expect(exit.code).toBe(7);
    expect(exit.stderrTail.split('\n')).toHaveLength(20);
    expect(exit.stderrTail).toMatch(/line 29$/);
    await agent.agent.stop(0);
    expect(agent.exits).toHaveLength(1);
  });

  it('delivers output that was paused when the agent exited', async () => {
    const agent = await start('sh', ['-c', 'printf "%0100000d" 0']);
    agent.agent.pause();
    await agent.exited;
    expect(agent.text()).toHaveLength(100_000);
  });

  it.each([
    ['no-such-agent-anywhere', 'ENOENT', 'no such command'],
    [import.meta.filename, 'EACCES', 'not executable'],
  ])('says why %s cannot be run (%s)', async (command, code, message) => {
    const nothing = (): void => undefined;
    const log = silentLogger();
    const outcome = await AgentProcess.start({
      command,
      args: [],
      log,
      onData: nothing,
      onDrain: nothing,
      onExit: nothing,
    });
    expect(outcome).toMatchObject({ outcome: 'failed', code });
    expect(outcome.outcome === 'failed' && outcome.message).toContain(message);
  });

  it('ends a group that ignores SIGTERM and the end of stdin, grandchildren too', async () => {
    const agent = await start(process.execPath, STUBBORN);
    await until(() => /^\d+\n$/.test(agent.text()));
    expect(groupRuns(agent.agent.pid)).toBe(true);
    await agent.agent.stop(100);
    expect(groupRuns(agent.agent.pid)).toBe(false);
    expect(agent.exits).toMatchObject([{ code: null, signal: 'SIGKILL' }]);
  });

  it('ends what a leader that exited left in its group, and does not wait for the stdout they hold', async () => {
    const agent = await start(process.execPath, STUBBORN);
    await until(() => /^\d+\n$/.test(agent.text()));
    agent.agent.write('exit\n');
    const exit = await agent.exited;
    expect(exit).toEqual({ code: 3, signal: null, stderrTail: 'leaving\nlast words' });
    await agent.agent.stop(0);
    expect(groupRuns(agent.agent.pid)).toBe(false);
  });

  it('a second stop with 0 ends the grace of the first', async () => {
    const agent = await start(process.execPath, STUBBORN);
    await until(() => /^\d+\n$/.test(agent.text()));
    const first = agent.agent.stop(3_600_000);
    await endAllGroups(0);
    await first;
    expect(groupRuns(agent.agent.pid)).toBe(false);
  });

  it('writes to an agent that is gone are dropped', async () => {
    const agent = await start('true', []);
    await agent.exited;
    expect(agent.agent.write('x'.repeat(10_000_000))).toBe(true);
  });

  it('keeps a record while the group lives', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'agents-'));
    try {
      writeFileSync(join(dir, 'other.txt'), '');
      const cat = await start('cat', [], { recordDir: dir });
      expect(readdirSync(dir)).toContain(`${cat.agent.pid}.json`);
      await cat.agent.stop(1000);
      expect(readdirSync(dir)).toEqual(['other.txt']);
    } finally {
      rmSync(dir, { recursive: true });
    }
  });
});
