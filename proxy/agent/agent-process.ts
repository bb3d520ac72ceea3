/**
 * One agent process on stdio, in a process group of its own.
 *
 *   start ──► running ──process exits──► closing ──stdout's end, at most 500 ms──► exited (onExit, once)
 *                │                                                                    │
 *                └── stop: stdin's end, SIGTERM to the group, after the grace SIGKILL ┴──► the whole group is gone
 *
 * Whatever ends the agent, its group is ended too: grandchildren may hold its stdout or a terminal. A group that has
 * been seen gone is never signalled again, because its number may then belong to somebody else.
 */
import '../../storage/latin1.ts';
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';
import type { Logger } from '../log.ts';
import { guardGroup } from './group-guard.ts';
import { forgetAgent, recordAgent } from './leftover-agents.ts';
import { groupGone, groupRuns, signalGroup } from './process-facts.ts';
import { StderrTail } from './stderr-tail.ts';

/** How long stdout may stay open after the process has exited. */
export const STDOUT_AFTER_EXIT_MS = 500;
/** Grace of a group whose leader exited by itself. */
const ORPHANS_GRACE_MS = 1000;
/** SIGKILL cannot be refused, but a process in an uninterruptible system call goes later. */
const AFTER_KILL_MS = 2000;
const DEFAULT_STDIN_BYTES = 1024 * 1024;

export interface AgentExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  /** The last 20 lines of its stderr, at most 4 KiB. */
  readonly stderrTail: string;
}

export interface AgentProcessOptions {
  readonly command: string;
  readonly args: readonly string[];
  readonly cwd?: string;
  readonly env?: NodeJS.ProcessEnv;
  readonly log: Logger;
  /** Taken out of what it writes to stderr, which errors tell. */
  readonly redact?: readonly RegExp[];
  /** Where a record is kept while the group lives, for `endLeftoverAgents` of the next start. */
  readonly recordDir?: string;
  /** Bytes on their way to stdin from which `write` says to wait. */
  readonly stdinBufferBytes?: number;
  /** A piece of stdout as it was read; lines are cut anywhere. */
  readonly onData: (chunk: Buffer) => void;
  /** `write` said to wait; now there is room again. */
  readonly onDrain: () => void;
  /** Once, after the last `onData`. */
  readonly onExit: (exit: AgentExit) => void;
}

export type StartOutcome =
  | { readonly outcome: 'started'; readonly agent: AgentProcess }
  /** The operating system did not run it. `code`: ENOENT, EACCES, ... */
  | { readonly outcome: 'failed'; readonly code: string; readonly message: string };

type Child = ChildProcessByStdio<Writable, Readable, Readable>;

const groups = new Set<AgentProcess>();

function startError(options: AgentProcessOptions, error: NodeJS.ErrnoException): StartOutcome {
  const code = error.code ?? 'UNKNOWN';
  const reasons: Record<string, string> = {
    ENOENT: options.cwd === undefined ? 'no such command' : `no such command, or no directory ${options.cwd}`,
    EACCES: 'it is not executable',
  };
  const reason = reasons[code] ?? error.message;
  return {
    outcome: 'failed',
    code,
    message: `the agent ${JSON.stringify(options.command)} cannot be run: ${reason} (${code})`,
  };
}

export class AgentProcess {
  readonly pid: number;
  readonly #child: Child;
  readonly #options: AgentProcessOptions;
  readonly #stdinBytes: number;
  readonly #stderr: StderrTail;
  readonly #exited: Promise<void>;
  readonly #releaseGuard: () => void;
  #resolveExited: () => void = () => undefined;
  #waitsForDrain = false;
  #exit: AgentExit | undefined;
  #gone = false;
  #stopping: Promise<void> | undefined;
  #killNow: () => void = () => undefined;

  /** Runs the command. An error of the operating system is an outcome, not an exception. */
  static async start(options: AgentProcessOptions): Promise<StartOutcome> {
    let child: Child;
    try {
      child = spawn(options.command, [...options.args], {
        cwd: options.cwd,
        env: options.env ?? process.env,
        detached: true,
        stdio: ['pipe', 'pipe', 'pipe'],
        windowsHide: true,
      });
    } catch (error) {
      return startError(options, error as NodeJS.ErrnoException);
    }
    if (child.pid === undefined) {
      return new Promise((resolve) => child.once('error', (error) => resolve(startError(options, error))));
    }
    return { outcome: 'started', agent: new AgentProcess(child, child.pid, options) };
  }

  private constructor(child: Child, pid: number, options: AgentProcessOptions) {
    this.#child = child;
    this.pid = pid;
    this.#options = options;
    this.#stdinBytes = options.stdinBufferBytes ?? DEFAULT_STDIN_BYTES;
    const { log, redact } = options;
    this.#stderr = new StderrTail((line) => log.info({ agentPid: pid, line }, 'agent stderr'), redact);
    this.#exited = new Promise((resolve) => {
      this.#resolveExited = resolve;
    });
    groups.add(this);
    this.#releaseGuard = guardGroup(pid, options.log);
    this.#record();
    this.#listen();
  }

  /** The last 20 lines of stderr so far. */
  get stderrTail(): string {
    return this.#stderr.text();
  }

  get exit(): AgentExit | undefined {
    return this.#exit;
  }

  /** Bytes written that the agent has not taken yet. */
  get stdinPendingBytes(): number {
    return this.#child.stdin.writableLength;
  }

  /**
   * Sends wire text (one character a byte) to the agent. False: take a rest until `onDrain`; what was given is kept all
   * the same. After stdin has ended it goes nowhere and there is nothing to wait for.
   */
  write(text: string): boolean {
    const { stdin } = this.#child;
    if (!stdin.writable) return true;
    stdin.write(text, 'latin1', this.#written);
    if (stdin.writableLength < this.#stdinBytes) return !this.#waitsForDrain;
    this.#waitsForDrain = true;
    return false;
  }

  /** Reads no more of stdout until `resume`; the agent then blocks when its pipe is full. */
  pause(): void {
    this.#child.stdout.pause();
  }

  resume(): void {
    this.#child.stdout.resume();
  }

  /**
   * Ends the agent and its whole group; resolved when nothing of it runs and `onExit` has been called. A second call
   * with 0 ends the grace of the first.
   */
  stop(graceMs: number): Promise<void> {
    if (this.#stopping && graceMs === 0) this.#killNow();
    this.#stopping ??= this.#end(graceMs);
    return this.#stopping;
  }

  /** SIGKILL to the group, now. For the last moment of this process. */
  kill(): void {
    if (!this.#gone) signalGroup(this.pid, 'SIGKILL');
  }

  // Node's own 'drain' does not come after a large write that ended at once, so room is looked for after every write.
  readonly #written = (): void => {
    if (!this.#waitsForDrain || this.#child.stdin.writableLength > this.#stdinBytes / 2) return;
    this.#waitsForDrain = false;
    this.#options.onDrain();
  };

  #record(): void {
    const { recordDir, log } = this.#options;
    if (recordDir !== undefined) recordAgent(recordDir, this.pid, log);
  }

  #listen(): void {
    const { stdin, stdout, stderr } = this.#child;
    const { log, onData } = this.#options;
    stdin.on('error', (error) => log.debug({ agentPid: this.pid, err: error.message }, 'agent stdin'));
    stdout.on('error', (error) => log.warn({ agentPid: this.pid, err: error.message }, 'agent stdout'));
    // A launcher may have replaced itself by the real program meanwhile (`exec`), under the same pid.
    stdout.once('data', () => this.#record());
    stdout.on('data', (chunk: Buffer) => {
      if (!this.#exit) onData(chunk);
    });
    // An agent that cannot speak any more is of no use, even if it lives on.
    stdout.once('end', () => {
      if (this.#child.exitCode === null && this.#child.signalCode === null) this.#lateEnd();
    });
    stderr.setEncoding('utf8');
    stderr.on('error', () => undefined);
    stderr.on('data', (text: string) => this.#stderr.push(text));
    stderr.on('end', () => this.#stderr.end());
    this.#child.on('error', (error) => log.warn({ agentPid: this.pid, err: error.message }, 'agent process'));
    this.#child.once('exit', (code, signal) => {
      this.#gone = !groupRuns(this.pid);
      const timer = setTimeout(() => this.#giveUpStdout(code, signal), STDOUT_AFTER_EXIT_MS);
      this.#child.once('close', () => {
        clearTimeout(timer);
        this.#finish(code, signal);
      });
    });
  }

  #lateEnd(): void {
    setTimeout(() => void this.stop(ORPHANS_GRACE_MS), STDOUT_AFTER_EXIT_MS).unref();
  }

  /** Somebody else holds stdout, or we paused it: take what is in the pipe, then call it the end. */
  #giveUpStdout(code: number | null, signal: NodeJS.Signals | null): void {
    this.#child.stdout.resume();
    // Two turns of the event loop read more than a pipe holds.
    setImmediate(() =>
      setImmediate(() => {
        this.#finish(code, signal);
        this.#child.stdout.destroy();
        this.#child.stderr.destroy();
      }),
    );
  }

  #finish(code: number | null, signal: NodeJS.Signals | null): void {
    if (this.#exit) return;
    this.#stderr.end();
    this.#exit = { code, signal, stderrTail: this.#stderr.text() };
    this.#child.stdin.destroy();
    this.#resolveExited();
    this.#options.onExit(this.#exit);
    void this.stop(ORPHANS_GRACE_MS);
  }

  async #end(graceMs: number): Promise<void> {
    this.#child.stdin.end();
    // A full stdout that nobody reads must not keep the agent from ending.
    this.#child.stdout.resume();
    const killed = new Promise<boolean>((resolve) => {
      this.#killNow = () => resolve(false);
    });
    if (!this.#gone) {
      signalGroup(this.pid, 'SIGTERM');
      this.#gone = await Promise.race([groupGone(this.pid, graceMs), killed]);
    }
    if (!this.#gone) {
      signalGroup(this.pid, 'SIGKILL');
      this.#gone = await groupGone(this.pid, AFTER_KILL_MS);
    }
    groups.delete(this);
    const { recordDir, log } = this.#options;
    if (!this.#gone) {
      log.error({ agentPid: this.pid }, 'agent group does not end');
      return;
    }
    this.#releaseGuard();
    if (recordDir !== undefined) forgetAgent(recordDir, this.pid);
    await this.#exited;
  }
}

/** Ends every agent that runs, with its group. */
export async function endAllGroups(graceMs: number): Promise<void> {
  await Promise.all([...groups].map((agent) => agent.stop(graceMs)));
}

/** The same without waiting, for a process that is about to leave. */
export function killAllGroups(): void {
  for (const agent of groups) agent.kill();
}
