/**
 * The agent's life: one process for all sessions, started with the sidecar, initialised with the first controller,
 * started again by the next request that needs it.
 *
 *   absent -> starting -> running -> (initialize answered) ready
 *     ^                      |
 *     +------- exited -------+   sessions are told, clients stay
 */
import { rpcError, type RpcError } from '../../protocol/error.ts';
import { errorText, isObject, type JsonObject } from '../../protocol/json-rpc.ts';
import { addMember, memberAt, parseWire, setValue, splice, stringifyWire } from '../../protocol/wire-text.ts';
import { STDIN_STUCK_MS, boundHit } from '../bounds.ts';
import type { Config } from '../config.ts';
import type { Logger } from '../log.ts';
import type { Metrics } from '../metrics.ts';
import type { Trace } from '../trace/trace.ts';
import type { AgentAnswer } from '../session/agent-port.ts';
import { withoutSidecarMeta } from '../../protocol/sidecar-meta.ts';
import { type AgentHandler, AgentLink } from './agent-link.ts';
import { type AgentExit, AgentProcess, type StartOutcome } from './agent-process.ts';
import { readStoredAnswer, writeStoredAnswer } from './stored-answer.ts';

export interface AgentHostOptions {
  readonly command: string;
  readonly args: readonly string[];
  readonly config: Config;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly trace: Trace | undefined;
  readonly now: () => number;
  readonly handler: AgentHandler;
  /** The agent does not take its input, or takes it again. */
  readonly inputHeld: (held: boolean) => void;
  /** How long the agent may take to answer `initialize`, 60 s. */
  readonly initializeMs?: number;
  /** The process is gone and all that it wrote has been handled. */
  readonly exited: (message: string, exit: AgentExit) => void;
  /** A process has answered `initialize`. */
  readonly initialized?: () => void;
}

export type Ready =
  | { readonly outcome: 'ready'; readonly link: AgentLink; readonly capabilities: JsonObject }
  | { readonly outcome: 'unavailable'; readonly error: RpcError }
  /** The agent answered `initialize` with an error, wire text. */
  | { readonly outcome: 'refused'; readonly error: string };

const INITIALIZE_MS = 60_000;
const STOP_GRACE_MS = 2000;
const FIRST_BACKOFF_MS = 250;
const LONGEST_BACKOFF_MS = 30_000;
/** A process that lived this long was not a failed start. */
const STEADY_MS = 10_000;

export class AgentHost {
  readonly #options: AgentHostOptions;
  #process: AgentProcess | undefined;
  #link: AgentLink | undefined;
  #starting: Promise<StartOutcome> | undefined;
  #ready: Promise<Ready> | undefined;
  #initialized: AgentLink | undefined;
  #answer: string | undefined;
  #initializeParams: string | undefined;
  #authenticateParams: string | undefined;
  #startedAt = 0;
  #failures = 0;
  #failedAt = 0;
  #stopping = false;
  #stuck: NodeJS.Timeout | undefined;
  #idle = false;
  #lastActivity = 0;
  #lastExit = '';
  #lastStderr = '';

  constructor(options: AgentHostOptions) {
    this.#options = options;
    this.#answer = readStoredAnswer(options.config.storeDir, [options.command, ...options.args]);
  }

  /** The agent's result of `initialize` from this life or an earlier one, wire text. */
  get storedAnswer(): string | undefined {
    return this.#answer;
  }

  get link(): AgentLink | undefined {
    return this.#link;
  }

  /** The link of a process that has answered `initialize`. */
  get initialized(): AgentLink | undefined {
    return this.#initialized;
  }

  /** The last lines that the agent, or the one before it, wrote to stderr. */
  get stderrTail(): string {
    return this.#process?.stderrTail ?? this.#lastStderr;
  }

  /** `failed`: it did not start or exited soon, and the pause before the next try is not over. */
  get state(): 'running' | 'stopped' | 'failed' {
    if (this.#link) return 'running';
    return this.#options.now() < this.#failedAt + this.#backoffMs() ? 'failed' : 'stopped';
  }

  /** Bytes written to the agent that it has not taken yet. */
  get stdinPendingBytes(): number {
    return this.#process?.stdinPendingBytes ?? 0;
  }

  get pid(): number | undefined {
    return this.#process?.pid;
  }

  /** True while the agent has not taken what it was sent: nothing more should be read from clients. */
  get inputHeld(): boolean {
    return this.#stuck !== undefined;
  }

  #write(text: string): boolean {
    const more = this.#process?.write(text) ?? true;
    if (!more) this.#setInputHeld(true);
    return more;
  }

  #setInputHeld(held: boolean): void {
    if (held === this.inputHeld) return;
    clearInterval(this.#stuck);
    this.#stuck = undefined;
    if (held) {
      boundHit('agent_stdin');
      let pending = this.#process?.stdinPendingBytes ?? 0;
      this.#stuck = setInterval(() => {
        const now = this.#process?.stdinPendingBytes ?? 0;
        if (now >= pending) this.restart(`it took nothing from its stdin for ${STDIN_STUCK_MS / 1000} s`);
        pending = now;
      }, STDIN_STUCK_MS);
    }
    this.#options.inputHeld(held);
  }

  pauseReading(): void {
    this.#process?.pause();
  }

  resumeReading(): void {
    this.#process?.resume();
  }

  /** Runs the command, unless it runs. */
  start(): Promise<StartOutcome> {
    this.#starting ??= this.#spawn();
    return this.#starting;
  }

  /** Whether a controller has come; before that the agent is not initialised, whoever asks for it. */
  get introduced(): boolean {
    return this.#initializeParams !== undefined;
  }

  /** What the agent is to be initialised with; only the first word counts. @param params wire text of a client */
  setInitializeParams(params: string): void {
    this.#initializeParams ??= this.#asTold(params);
  }

  /** A client's params as the agent gets them. */
  #asTold(params: string): string {
    let text = withoutSidecarMeta(params);
    const version = memberAt(text, ['protocolVersion']);
    if (version) text = splice(text, [setValue(version, '1')]);
    const forced = this.#options.config.clientCapabilities;
    const found = memberAt(text, ['clientCapabilities']);
    const own = found && withoutSidecarMeta(text.slice(found.valueStart, found.valueEnd));
    const told = forced ? stringifyWire(forced) : own;
    if (told === undefined) return text;
    return splice(text, [found ? setValue(found, told) : addMember(text, 0, 'clientCapabilities', told)]);
  }

  /** The last `authenticate` that the agent accepted is repeated in each new process; kept in memory only. */
  rememberAuthenticate(params: string | undefined): void {
    this.#authenticateParams = params;
  }

  /** A running agent that has been initialised. */
  ready(): Promise<Ready> {
    this.#ready ??= this.#makeReady();
    return this.#ready;
  }

  /** Milliseconds since 1970 of the agent's last output or start. */
  get lastActivity(): number {
    return this.#lastActivity;
  }

  /** Ends a process that nobody needs now. It is no crash: the next start does not wait. */
  stopIdle(): void {
    if (!this.#process || this.#idle) return;
    this.#idle = true;
    this.#options.logger.info({ agentPid: this.#process.pid }, 'the idle agent is stopped');
    void this.#process.stop(STOP_GRACE_MS);
  }

  /** Ends the process as in a crash; the next request that needs it starts it again. */
  restart(why: string): void {
    this.#options.logger.warn({ agentPid: this.#process?.pid, why }, 'the agent is restarted');
    void this.#process?.stop(STOP_GRACE_MS);
  }

  async stop(graceMs: number): Promise<void> {
    this.#stopping = true;
    await this.#starting;
    await this.#process?.stop(graceMs);
  }

  async #spawn(): Promise<StartOutcome> {
    const options = this.#options;
    const wait = this.#backoffMs();
    if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
    const traced = options.trace?.agent();
    const link: AgentLink = new AgentLink({
      write: (text) => {
        traced?.sent(text);
        return this.#write(text);
      },
      handler: options.handler,
      logger: options.logger,
      maxMessageBytes: options.config.maxMessageBytes,
      restart: (why) => this.restart(why),
      dropped: (cause) => options.metrics.messageDropped(cause),
    });
    const started = await AgentProcess.start({
      command: options.command,
      args: options.args,
      log: options.logger,
      redact: options.config.redact,
      recordDir: `${options.config.storeDir}/agents`,
      onData: (chunk) => {
        traced?.received(chunk);
        this.#lastActivity = options.now();
        link.data(chunk);
      },
      onDrain: () => this.#setInputHeld(false),
      onExit: (exit) => {
        traced?.ended();
        this.#exited(link, exit);
      },
    });
    options.metrics.agentStart(started.outcome);
    if (started.outcome === 'failed') {
      traced?.ended();
      this.#starting = undefined;
      this.#failures++;
      this.#failedAt = options.now();
      return started;
    }
    this.#process = started.agent;
    this.#link = link;
    this.#startedAt = options.now();
    this.#lastActivity = this.#startedAt;
    options.logger.info({ agentPid: started.agent.pid, command: options.command }, 'agent started');
    return started;
  }

  #backoffMs(): number {
    if (this.#failures === 0) return 0;
    return Math.min(LONGEST_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** (this.#failures - 1));
  }

  #exited(link: AgentLink, exit: AgentExit): void {
    const how = exit.signal ? `was ended by ${exit.signal}` : `exited with code ${exit.code}`;
    const stderr = exit.stderrTail === '' ? '' : `; its last output: ${exit.stderrTail}`;
    const message = this.#idle ? 'the agent was stopped, because nothing ran in it' : `the agent ${how}${stderr}`;
    this.#failedAt = this.#options.now();
    this.#lastExit = message;
    this.#options.metrics.agentExit(exit);
    const { code, signal } = exit;
    // One that was asked to end did what it was asked.
    const level = this.#idle || this.#stopping ? 'info' : 'warn';
    this.#options.logger[level]({ agentPid: this.#process?.pid, code, signal, message }, 'agent exited');
    this.#lastStderr = exit.stderrTail;
    const early = this.#options.now() - this.#startedAt < STEADY_MS;
    this.#failures = early && !this.#idle ? this.#failures + 1 : 0;
    this.#idle = false;
    this.#setInputHeld(false);
    this.#process = undefined;
    this.#link = undefined;
    this.#initialized = undefined;
    this.#starting = undefined;
    this.#ready = undefined;
    link.close(message);
    this.#options.exited(message, exit);
  }

  async #makeReady(): Promise<Ready> {
    if (this.#stopping) return this.#unavailable('the sidecar is stopping');
    const started = await this.start();
    if (started.outcome === 'failed') {
      this.#ready = undefined;
      return this.#unavailable(started.message);
    }
    const link = this.#link;
    const params = this.#initializeParams;
    if (!link || params === undefined) {
      this.#ready = undefined;
      return this.#unavailable(link ? 'no controller has come that it could be initialised with' : this.#lastExit);
    }
    const ready = await this.#initialize(link, params);
    if (ready.outcome !== 'ready') this.#ready = undefined;
    else this.#failures = 0;
    return ready;
  }

  async #initialize(link: AgentLink, params: string): Promise<Ready> {
    const patience = this.#options.initializeMs ?? INITIALIZE_MS;
    const answer = await this.#ask(link, 'initialize', params, patience);
    if (answer.outcome === 'lost') return this.#unavailable(answer.message);
    const { result, error, wire } = answer.message;
    if (!result) {
      return { outcome: 'refused', error: error ? wire.slice(error.valueStart, error.valueEnd) : 'null' };
    }
    const text = wire.slice(result.valueStart, result.valueEnd);
    if (text !== this.#answer) {
      this.#answer = text;
      this.#store(text);
    }
    if (this.#authenticateParams !== undefined) {
      await this.#ask(link, 'authenticate', this.#authenticateParams, INITIALIZE_MS);
    }
    if (this.#link === link) {
      this.#initialized = link;
      this.#options.initialized?.();
    }
    return { outcome: 'ready', link, capabilities: capabilitiesOf(text) };
  }

  /** For the next start only: this one goes on without it. */
  #store(answer: string): void {
    const { config, command, args, logger } = this.#options;
    try {
      writeStoredAnswer(config.storeDir, [command, ...args], answer);
    } catch (error) {
      logger.warn({ err: (error as Error).message }, 'the answer of the agent to initialize could not be kept');
    }
  }

  #unavailable(detail: string): Ready {
    return { outcome: 'unavailable', error: rpcError('agent_unavailable', detail, { stderr: this.stderrTail }) };
  }

  #ask(link: AgentLink, method: string, params: string, timeoutMs: number): Promise<AgentAnswer> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        this.restart(`it did not answer ${method}`);
        resolve({ outcome: 'lost', message: `the agent did not answer ${method} in ${timeoutMs / 1000} s` });
      }, timeoutMs);
      link.request(method, params, (answer) => {
        clearTimeout(timer);
        resolve(answer);
      });
    });
  }
}

/** `agentCapabilities` of an initialize result. */
export function capabilitiesOf(result: string): JsonObject {
  const value = parseWire(result);
  const capabilities = isObject(value) ? value['agentCapabilities'] : undefined;
  return isObject(capabilities) ? capabilities : {};
}

/** The response to a request that needed the agent when there is none. */
export function notReadyText(id: string, ready: Exclude<Ready, { outcome: 'ready' }>): string {
  return errorText(id, ready.outcome === 'refused' ? ready.error : stringifyWire(ready.error));
}
