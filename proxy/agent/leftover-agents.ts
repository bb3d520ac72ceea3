/**
 * Agents that outlived a sidecar that was killed. While an agent group lives, a record of it lies in the store; the
 * next start ends what the records name. A pid alone is not proof: only a process with the recorded pid as its group,
 * the recorded start time and the recorded command is ours. Anything else is named in the log and left alone.
 */
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from '../log.ts';
import { groupGone, groupMembers, osBootId, processCommand, processFacts, signalGroup } from './process-facts.ts';

interface AgentRecord {
  readonly pgid: number;
  readonly bootId: string;
  readonly startTime: string;
  /** Only a digest: arguments may hold keys. */
  readonly commandHash: string;
}

function hashOf(command: readonly string[]): string {
  return createHash('sha256').update(command.join('\0')).digest('hex');
}

function recordFile(dir: string, pgid: number): string {
  return join(dir, `${pgid}.json`);
}

/** Writes or renews the record of the group that `pgid` leads. A failure is logged: the agent runs all the same. */
export function recordAgent(dir: string, pgid: number, log: Logger): void {
  const facts = processFacts(pgid);
  if (!facts) return;
  const { startTime } = facts;
  const record: AgentRecord = { pgid, bootId: osBootId(), startTime, commandHash: hashOf(processCommand(pgid)) };
  try {
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    writeFileSync(recordFile(dir, pgid), JSON.stringify(record), { mode: 0o600 });
  } catch (error) {
    log.warn(
      { pgid, err: (error as Error).message },
      'agent record not written; a kill -9 could leave the agent behind',
    );
  }
}

export function forgetAgent(dir: string, pgid: number): void {
  rmSync(recordFile(dir, pgid), { force: true });
}

function readRecord(file: string): AgentRecord | undefined {
  try {
    const value = JSON.parse(readFileSync(file, 'utf8')) as Partial<AgentRecord> | null;
    const { pgid, bootId, startTime, commandHash } = value ?? {};
    if (typeof pgid !== 'number' || !Number.isSafeInteger(pgid) || pgid <= 1) return undefined;
    if (typeof bootId !== 'string' || typeof startTime !== 'string' || typeof commandHash !== 'string')
      return undefined;
    return { pgid, bootId, startTime, commandHash };
  } catch {
    return undefined;
  }
}

type Standing = 'ours' | 'gone' | 'foreign';

function standing(record: AgentRecord): Standing {
  if (record.bootId !== osBootId()) return 'gone';
  const leader = processFacts(record.pgid);
  if (!leader || leader.zombie) return groupMembers(record.pgid).length === 0 ? 'gone' : 'foreign';
  if (leader.startTime !== record.startTime) return 'gone';
  const same = hashOf(processCommand(record.pgid)) === record.commandHash;
  return leader.pgid === record.pgid && same ? 'ours' : 'foreign';
}

/**
 * Ends the groups that records in `dir` name, SIGKILL after `graceMs`, and removes the records. Called under the store's
 * lock, before an agent is started.
 */
export async function endLeftoverAgents(dir: string, log: Logger, graceMs: number): Promise<void> {
  let names: string[];
  try {
    names = readdirSync(dir).filter((name) => name.endsWith('.json'));
  } catch {
    return;
  }
  await Promise.all(names.map((name) => endLeftover(join(dir, name), log, graceMs)));
}

async function endLeftover(file: string, log: Logger, graceMs: number): Promise<void> {
  const record = readRecord(file);
  const state = record ? standing(record) : 'gone';
  if (record && state === 'foreign') {
    const members = groupMembers(record.pgid).map(({ pid }) => ({ pid, command: processCommand(pid)[0] }));
    log.warn({ pgid: record.pgid, members }, 'these may be left of an earlier agent; not proven, left alone');
  }
  if (record && state === 'ours') {
    log.warn(
      { pgid: record.pgid, command: processCommand(record.pgid)[0] },
      'ending an agent that an earlier sidecar left behind',
    );
    signalGroup(record.pgid, 'SIGTERM');
    if (!(await groupGone(record.pgid, graceMs))) {
      signalGroup(record.pgid, 'SIGKILL');
      await groupGone(record.pgid, 2000);
    }
  }
  rmSync(file, { force: true });
}
