/**
 * `serve`: puts the house together and runs it until a signal or a failure.
 *
 *   agent process -> AgentLink -> Registry -> Session -> Order -> GroupCommit -> LMDB
 *                                                 |
 *   clients <- Outbox <- pump <- Connection <-----+
 */
import { randomBytes, randomUUID } from 'node:crypto';
import { rpcError } from '../protocol/error.ts';
import { GroupCommit } from '../storage/group-commit.ts';
import { HistoryCache } from '../storage/history-cache.ts';
import { cacheDir } from '../storage/history-dir.ts';
import { SessionTitles } from '../storage/session-title.ts';
import { ColdViews } from './session/cold-view.ts';
import { openLmdbEventLog } from '../storage/lmdb-event-log.ts';
import { StoreOpenError } from '../storage/store-error.ts';
import type { LmdbStore } from '../storage/lmdb-event-log.ts';
import { AgentEvents } from './agent/agent-events.ts';
import { AgentHost } from './agent/agent-host.ts';
import { bindSession } from './agent/binding.ts';
import { watchIdle } from './agent/idle-agent.ts';
import { UntoldDeletions } from './agent/untold-deletions.ts';
import { endLeftoverAgents } from './agent/leftover-agents.ts';
import { UNCOMMITTED_BYTES, boundHit } from './bounds.ts';
import { CommandError, exitCode } from './cli/exit-code.ts';
import { terminalWatch } from './cli/ways-out.ts';
import type { Config, ListenAddress } from './config.ts';
import { RequestMemory } from './client-methods/request-memory.ts';
import { serveControlSocket } from './control/server-part.ts';
import { FullDisk, tellLogState } from './full-disk.ts';
import type { House } from './house.ts';
import { KeptServers } from './kept-servers.ts';
import { type Logger, createLogger } from './log.ts';
import { Metrics } from './metrics.ts';
import { Registry } from './registry.ts';
import { EventWatch } from './session/event-watch.ts';
import type { BoundOutcome } from './session/agent-port.ts';
import type { Session, SessionHost } from './session/session.ts';
import { Tick } from './tick.ts';
import type { Trace } from './trace/trace.ts';
import { Door } from './transport/door.ts';
import { type Listener, listen, prepareAddress } from './transport/listen.ts';
import { createWebSocketServer } from './transport/websocket.ts';

const BOOT_BYTES = 4;
const AGENT_GRACE_MS = 2000;

/** What else a server does once it accepts connections; the result ends that. `stop` ends the server in good order. */
export type Duties = (house: House, stop: () => void) => () => void;

/** Runs until a signal or a failure; resolves to the exit code. */
export async function runServe(
  config: Config,
  agent: { command: string; args: string[] },
  duties?: Duties,
): Promise<number> {
  const logger = createLogger(config.logLevel, { redact: config.redact });
  const door = new Door(config, logger);
  for (const address of config.listen) prepareAddress(address);
  const trace = await openTrace(config, logger);
  const onLowSpace = (low: boolean): void => tellLowSpace(logger, low);
  let log: LmdbStore;
  try {
    log = await openLmdbEventLog(config.storeDir, { onLowSpace });
  } catch (error) {
    return storeFailure(error);
  }
  return new Server(config, agent, logger, log, { door, trace }).run(duties);
}

/** Loaded only when it is asked for. @throws CommandError (usage) when the file cannot be written */
async function openTrace(config: Config, logger: Logger): Promise<Trace | undefined> {
  const { traceFile: path, redact, maxMessageBytes } = config;
  if (path === undefined) return undefined;
  const { Trace } = await import('./trace/trace.ts');
  try {
    const trace = new Trace({ path, redact, maxMessageBytes, logger, now: Date.now });
    process.once('exit', () => trace.close());
    logger.warn({ path }, 'everything that clients and the agent say is recorded');
    return trace;
  } catch (error) {
    throw new CommandError('usage', `--trace: ${error instanceof Error ? error.message : String(error)}`);
  }
}

/** What is only there when it is asked for, and what keeps strangers out. */
interface ServerParts {
  readonly door: Door;
  readonly trace: Trace | undefined;
}

function storeFailure(error: unknown): number {
  if (!(error instanceof StoreOpenError)) throw error;
  process.stderr.write(`acp-sidecar: ${error.message}\n`);
  return exitCode(error.kind === 'held' ? 'store_in_use' : 'store_failed');
}

function tellLowSpace(logger: Logger, low: boolean): void {
  if (low) logger.warn('the disk of the store is nearly full: new prompts are refused, what runs may end');
  else logger.info('the disk of the store has room again');
}

class Server {
  readonly #config: Config;
  readonly #logger: Logger;
  readonly #log: LmdbStore;
  readonly #house: House;
  readonly #agentHost: AgentHost;
  readonly #registry: Registry;
  readonly #commit: GroupCommit;
  readonly #door: Door;
  /** Bytes of all sessions that no commit holds yet. */
  readonly #backlog = { bytes: 0 };
  readonly #tick = new Tick({
    commit: (session) => {
      if (session.order.pending || session.order.peekRow()) this.#commit.offer(session.order);
    },
    committed: () => this.#throttleAgent(),
  });
  readonly #fullDisk: FullDisk;
  readonly #listeners: Listener[] = [];
  #paused = false;
  #finish: (code: number) => void = () => undefined;
  #leaveDuties: () => void = () => undefined;
  #leaveControl: () => Promise<void> = () => Promise.resolve();

  constructor(
    config: Config,
    agent: { command: string; args: string[] },
    logger: Logger,
    log: LmdbStore,
    { door, trace }: ServerParts,
  ) {
    this.#config = config;
    this.#logger = logger;
    this.#log = log;
    this.#door = door;
    const boot = bootId();
    const now = Date.now;
    const metrics = new Metrics();
    const store: House['store'] = { state: 'ok' };
    const history = new HistoryCache(log, cacheDir(config.storeDir));
    const sessionHost: SessionHost = {
      log,
      history,
      boot,
      config,
      logger,
      now,
      newId: randomUUID,
      backlog: this.#backlog,
      touched: (session) => this.#tick.touch(session),
      asleep: (session) => {
        this.#tick.forget(session);
        this.#agentHost.link?.dropTemplates();
      },
      bind: (session) => this.#bind(session),
      watch: new EventWatch(metrics, now),
      stalled: (session, message) => {
        this.#fullDisk.stalled(session, message);
        if (store.state !== 'failed') store.state = this.#fullDisk.full ? 'full' : 'ok';
      },
      damaged: (session, error) => {
        session.damage = error;
        logger.error({ sessionId: session.sessionId, error: error.message }, 'log damaged');
      },
    };
    this.#registry = new Registry(sessionHost, config.maxOpenSessions);
    const connections = new Set<House['connections'] extends Set<infer T> ? T : never>();
    const link = (): AgentHost['link'] => this.#agentHost.link;
    const events = new AgentEvents({ registry: this.#registry, connections, logger, metrics, link });
    this.#agentHost = new AgentHost({
      ...agent,
      config,
      logger,
      metrics,
      trace,
      now,
      handler: events,
      inputHeld: (held) => {
        for (const connection of connections) {
          if (held) connection.hold('agent');
          else connection.release('agent');
        }
      },
      initialized: () => this.#house.untold.agentReady(),
      exited: (message, exit) => {
        // A new process is not paused.
        this.#paused = false;
        events.agentExited();
        this.#registry.agentExited(message, exit);
      },
    });
    this.#fullDisk = new FullDisk({
      logger,
      connections,
      stallMs: config.stallMs,
      now,
      endAgent: (why) => this.#agentHost.restart(why),
    });
    this.#commit = new GroupCommit(
      metrics.timed(log, () => performance.now()),
      { onFailed: (message) => this.#storeFailed(message) },
    );
    const { log: eventLog } = sessionHost;
    this.#house = {
      config,
      logger,
      log: eventLog,
      commit: this.#commit,
      history,
      titles: new SessionTitles(log),
      coldViews: new ColdViews(log, now),
      boot,
      agentHost: this.#agentHost,
      registry: this.#registry,
      untold: new UntoldDeletions({
        agentHost: this.#agentHost,
        log: eventLog,
        commit: this.#commit,
        logger,
        live: (id) => this.#registry.byAgentId(id) !== undefined,
      }),
      connections,
      tick: this.#tick,
      requestMemory: new RequestMemory(now),
      metrics,
      trace,
      store,
      newId: randomUUID,
      now,
      mcpServers: new KeptServers(),
      draining: false,
    };
  }

  async run(duties?: Duties): Promise<number> {
    const finished = new Promise<number>((resolve) => {
      this.#finish = resolve;
    });
    await endLeftoverAgents(`${this.#config.storeDir}/agents`, this.#logger, AGENT_GRACE_MS);
    const started = await this.#agentHost.start();
    if (started.outcome === 'failed') {
      process.stderr.write(`acp-sidecar: ${started.message}\n`);
      await this.#log.close();
      return exitCode('agent_failed');
    }
    if (this.#config.agentIdleMs !== undefined) watchIdle(this.#house, this.#config.agentIdleMs);
    const webSockets = createWebSocketServer(this.#config.maxMessageBytes);
    const listenAt = async (address: ListenAddress): Promise<void> => {
      this.#listeners.push(await listen(address, this.#house, webSockets, this.#door));
    };
    for (const address of this.#config.listen) await listenAt(address);
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => void this.#drain());
    this.#leaveDuties = duties?.(this.#house, () => void this.#drain()) ?? this.#leaveDuties;
    const terminalGone = terminalWatch();
    process.on('SIGHUP', () => {
      if (terminalGone()) void this.#drain();
      else this.#door.reload(this.#house.connections);
    });
    // A socket whose file was taken away is listened on again, beside the first time.
    const endpoints = (): string[] => [...new Set(this.#listeners.map(({ endpoint }) => endpoint))];
    this.#leaveControl = await serveControlSocket({
      house: this.#house,
      log: this.#log,
      commit: this.#commit,
      endpoints,
      listen: (path) => listenAt({ kind: 'unix', path }),
      stop: () => void this.#drain(),
    });
    const ready = { event: 'ready', endpoints: endpoints(), store: this.#config.storeDir, pid: process.pid };
    process.stdout.write(`${JSON.stringify(ready)}\n`);
    return finished;
  }

  /** The agent waits in its pipe while the store cannot keep up. */
  #throttleAgent(): void {
    const { bytes } = this.#backlog;
    const readOn = this.#fullDisk.mustRead();
    if (bytes > UNCOMMITTED_BYTES && !this.#paused && !readOn) {
      this.#paused = true;
      boundHit('append_queue');
      this.#agentHost.pauseReading();
    } else if (this.#paused && (readOn || bytes < UNCOMMITTED_BYTES / 2)) {
      this.#paused = false;
      this.#agentHost.resumeReading();
    }
  }

  #bind(session: Session): ReturnType<SessionHost['bind']> {
    const { link } = this.#agentHost;
    if (link && session.agentSessionId !== undefined) {
      const { agentSessionId } = session;
      // Of two that the agent gave one id it is that of the one that is used.
      if (this.#registry.route(agentSessionId, session)) link.dropTemplates();
      return { outcome: 'bound', agent: link, agentSessionId };
    }
    session.binding ??= bindSession(
      {
        agentHost: this.#agentHost,
        route: (id, to) => void this.#registry.route(id, to),
        unroute: (id, replaying) => this.#registry.unroute(id, replaying),
        creating: () => this.#registry.creating(),
        mcpServers: ({ sessionId }) => this.#house.mcpServers.get(sessionId) ?? '[]',
      },
      session,
    )
      .catch((error: unknown): BoundOutcome => {
        // A log that cannot be read, or that was deleted meanwhile, is this session's trouble only.
        session.logger.error({ err: error }, 'the session could not be bound');
        const { sessionId } = session;
        return { outcome: 'unavailable', error: rpcError('internal', 'the session could not be bound', { sessionId }) };
      })
      .finally(() => {
        session.binding = undefined;
      });
    return session.binding;
  }

  /** SIGTERM: no new prompts, running turns may end, then everything is closed in order. */
  async #drain(): Promise<void> {
    if (this.#house.draining) return;
    this.#house.draining = true;
    this.#leaveDuties();
    const deadline = Date.now() + this.#config.drainMs;
    const running = (): Session[] => [...this.#registry.open()].filter((session) => session.turns.current);
    for (const session of this.#registry.open()) session.turns.stopQueued('the sidecar is stopping');
    while (running().length > 0 && Date.now() < deadline) await delay(20);
    for (const session of running()) {
      session.approvals.interruptForStop('the sidecar is stopping');
      session.turns.cancel();
    }
    const grace = Date.now() + AGENT_GRACE_MS;
    while (running().length > 0 && Date.now() < grace) await delay(20);
    await Promise.all(this.#listeners.map((listener) => Promise.race([listener.close(), delay(0)])));
    await this.#agentHost.stop(AGENT_GRACE_MS);
    for (const session of this.#registry.open()) session.approvals.interruptAll('the sidecar is stopping');
    await delay(0);
    await Promise.race([this.#commit.idle(), delay(AGENT_GRACE_MS)]);
    // The last answers are owed by now; they go out before the goodbye.
    await delay(0);
    for (const connection of this.#house.connections) {
      connection.pump();
      connection.transport.close(1012, 'restarting');
    }
    await delay(50);
    await this.#leaveControl();
    this.#registry.close();
    this.#house.history.close();
    await this.#log.close();
    this.#finish(exitCode('ok'));
  }

  /** The store must not be used any more: everybody is told to come back, the supervisor starts us again. */
  #storeFailed(message: string): void {
    this.#house.store.state = 'failed';
    this.#logger.error({ message }, 'the store failed; this process writes no more');
    for (const listener of this.#listeners) void listener.close();
    for (const connection of this.#house.connections) {
      for (const session of connection.sessions.keys()) tellLogState(connection, session, 'failed', message);
      connection.transport.outbox.flush();
      connection.transport.close(1012, 'store failed');
    }
    void this.#agentHost.stop(AGENT_GRACE_MS).finally(() => this.#finish(exitCode('store_failed')));
  }
}

/** 6 characters, new for each process. */
function bootId(): string {
  return (randomBytes(BOOT_BYTES).readUInt32BE() % 36 ** 6).toString(36).padStart(6, '0');
}

function delay(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
