/**
 * What the operating system says about processes and their groups. Linux tells through /proc; elsewhere only whether
 * a group exists is known.
 */
import { readdirSync, readFileSync } from 'node:fs';

export interface ProcessFacts {
  readonly pid: number;
  readonly pgid: number;
  /** Ended but not collected by its parent: it runs nothing any more and cannot be ended further. */
  readonly zombie: boolean;
  /** Clock ticks since boot, as text. With the boot id it tells a process from a later one with the same pid. */
  readonly startTime: string;
}

function readProc(path: string): string | undefined {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    return undefined;
  }
}

/** Undefined when there is no such process or no /proc. Source: proc_pid_stat(5). */
export function processFacts(pid: number): ProcessFacts | undefined {
  const stat = readProc(`/proc/${pid}/stat`);
  if (stat === undefined) return undefined;
  // The second field is the name in parentheses and may itself hold spaces and parentheses.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const state = fields[0] ?? '';
  return { pid, pgid: Number(fields[2]), zombie: state === 'Z' || state === 'X', startTime: fields[19] ?? '' };
}

/** The arguments a process runs with; empty when unknown. */
export function processCommand(pid: number): string[] {
  const line = readProc(`/proc/${pid}/cmdline`) ?? '';
  return line === '' ? [] : Buffer.from(line.replace(/\0$/, ''), 'latin1').toString('utf8').split('\0');
}

export function osBootId(): string {
  return readProc('/proc/sys/kernel/random/boot_id')?.trim() ?? '';
}

/** Sends a signal (0: only asks) to a group; false when it does not exist or is not ours to signal. */
export function signalGroup(pgid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(-pgid, signal);
  } catch {
    return false;
  }
}

/** The members of a group that still run. */
export function groupMembers(pgid: number): ProcessFacts[] {
  let names: string[];
  try {
    names = readdirSync('/proc');
  } catch {
    return [];
  }
  return names
    .filter((name) => /^\d+$/.test(name))
    .map((name) => processFacts(Number(name)))
    .filter((facts): facts is ProcessFacts => facts !== undefined && facts.pgid === pgid && !facts.zombie);
}

/** Whether anything of the group still runs. Orphans that nobody collects (no init in a container) do not count. */
export function groupRuns(pgid: number): boolean {
  if (!signalGroup(pgid, 0)) return false;
  return process.platform !== 'linux' || groupMembers(pgid).length > 0;
}

/** Waits until nothing of the group runs, at most `ms`; whether it is so. */
export async function groupGone(pgid: number, ms: number): Promise<boolean> {
  const until = performance.now() + ms;
  for (let pause = 2; groupRuns(pgid); pause = Math.min(pause * 2, 50)) {
    const left = until - performance.now();
    if (left <= 0) return false;
    await new Promise((resolve) => setTimeout(resolve, Math.min(pause, left)));
  }
  return true;
}
