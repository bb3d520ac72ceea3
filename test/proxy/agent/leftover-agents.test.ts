import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { endLeftoverAgents, recordAgent } from '../../../proxy/agent/leftover-agents.ts';
import { groupRuns, signalGroup } from '../../../proxy/agent/process-facts.ts';
import { silentLogger } from '../../../proxy/log.ts';

const log = silentLogger();

describe.runIf(process.platform === 'linux')('agents that a killed sidecar left behind', () => {
  let dir: string;
  let child: ChildProcess;
  let pgid: number;

  beforeEach(async () => {
    dir = mkdtempSync(join(tmpdir(), 'agents-'));
    // Ignores SIGTERM and has a child in its group, as a stubborn agent does.
    child = spawn('sh', ['-c', 'trap "" TERM; sleep 600 & echo up; wait; wait'], { detached: true, stdio: 'pipe' });
    pgid = child.pid as number;
    await new Promise((resolve) => child.stdout?.once('data', resolve));
    recordAgent(dir, pgid, log);
  });

  afterEach(() => {
    signalGroup(pgid, 'SIGKILL');
    rmSync(dir, { recursive: true });
  });

  function changeRecord(change: (record: Record<string, unknown>) => void): void {
    const file = join(dir, `${pgid}.json`);
    const record = JSON.parse(readFileSync(file, 'utf8')) as Record<string, unknown>;
    change(record);
    writeFileSync(file, JSON.stringify(record));
  }

  it('[AG6] are ended with their group', async () => {
    await endLeftoverAgents(dir, log, 50);
    expect(groupRuns(pgid)).toBe(false);
    expect(readdirSync(dir)).toEqual([]);
  });

  it.each(['startTime', 'commandHash', 'bootId'])('[AG6] are left alone when %s differs', async (field) => {
    changeRecord((record) => {
      record[field] = '1';
    });
    await endLeftoverAgents(dir, log, 50);
    expect(groupRuns(pgid)).toBe(true);
    expect(readdirSync(dir)).toEqual([]);
  });

  it('a record that cannot be read ends nothing', async () => {
    writeFileSync(join(dir, `${pgid}.json`), '{"pgid":1}');
    writeFileSync(join(dir, 'x.json'), 'garbage');
    await endLeftoverAgents(dir, log, 50);
    expect(groupRuns(pgid)).toBe(true);
    expect(readdirSync(dir)).toEqual([]);
  });

  it('no directory is no leftover', async () => {
    await expect(endLeftoverAgents(join(dir, 'none'), log, 50)).resolves.toBeUndefined();
  });
});
