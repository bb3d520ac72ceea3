/**
 * `OPTIONS` is the one table of what can be set; flags, environment variables, the keys of the config file, the help
 * and the README's table all come from it (a test compares the README).
 */
import { join, resolve } from 'node:path';
import type { RetainPolicy } from '../storage/retention-plan.ts';
import { defaultStoreDir, homeDir } from './home-dir.ts';
import {
  BadValue,
  type Bounds,
  type ListenAddress,
  parseAddress,
  parseChoice,
  parseCount,
  parseDuration,
  parseFlag,
  parseJsonObject,
  parseOrigin,
  parseRetain,
  parsePattern,
  parseSize,
  splitList,
} from './option-values.ts';

export type { ListenAddress } from './option-values.ts';

/** Those that only need to know which store. */
export const STORE_COMMANDS = [
  'sessions',
  'show',
  'events',
  'history',
  'approvals',
  'tail',
  'export',
  'import',
  'fork',
  'delete',
  'prune',
  'verify',
  'repair',
  'backup',
  'status',
  'stop',
] as const;
export type StoreCommand = (typeof STORE_COMMANDS)[number];
/** Commands that read the configuration. */
export type ConfiguredCommand = 'serve' | 'run' | StoreCommand;

export const BUSY_POLICIES = ['queue', 'reject'] as const;
export const RESTORE_WAYS = ['resume', 'load', 'prime'] as const;
export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'silent'] as const;

export type BusyPolicy = (typeof BUSY_POLICIES)[number];
export type RestoreWay = (typeof RESTORE_WAYS)[number];
export type LogLevel = (typeof LOG_LEVELS)[number];

export interface Config {
  /** Absolute path of the store's directory. */
  readonly storeDir: string;
  readonly listen: readonly ListenAddress[];
  readonly tokenFile: string | undefined;
  /** PEM files; both or none. With them every TCP address speaks TLS. */
  readonly tlsCert: string | undefined;
  readonly tlsKey: string | undefined;
  readonly insecurePlaintext: boolean;
  /** Origins as browsers send them: scheme, host, port. */
  readonly allowOrigins: readonly string[];
  readonly maxConnections: number;
  readonly maxOpenSessions: number;
  readonly onBusy: BusyPolicy;
  /** Undefined: approvals wait for ever. */
  readonly approvalTimeoutMs: number | undefined;
  readonly heartbeatMs: number;
  readonly maxMessageBytes: number;
  readonly clientBufferBytes: number;
  /** What the agent is told that clients can do; undefined: what the first controller says. */
  readonly clientCapabilities: Readonly<Record<string, unknown>> | undefined;
  /** Ways to bring a session back into a new agent process, tried in this order. */
  readonly restore: readonly RestoreWay[];
  /** Of a daemon that `run` started: time without clients, turns and approvals until it leaves. */
  readonly idleExitMs: number;
  /** Undefined: an idle agent is left running. */
  readonly agentIdleMs: number | undefined;
  readonly drainMs: number;
  readonly stallMs: number;
  /** Absolute path; undefined: nothing is traced. */
  readonly traceFile: string | undefined;
  readonly logLevel: LogLevel;
  /** What is kept of whole sessions, and of the events of each. */
  readonly retain: RetainPolicy;
  readonly retainEvents: RetainPolicy;
  /** What they match is taken out of the sidecar's log lines; global and Unicode-aware. */
  readonly redact: readonly RegExp[];
}

export type OptionKind =
  | 'duration'
  | 'size'
  | 'string'
  | 'path'
  | 'list'
  | 'flag'
  | 'choice'
  | 'address'
  | 'json'
  | 'count';

export interface OptionSpec<T = unknown> {
  /** The flag without its dashes. */
  readonly name: string;
  readonly kind: OptionKind;
  /** Placeholder of the value in the help; none for flags. */
  readonly arg?: string;
  /** Default, in the form a user would write it; undefined: not set. */
  readonly default?: string;
  /** One line. */
  readonly help: string;
  readonly commands: readonly ConfiguredCommand[];
  /** May be given more than once; each may hold several values, separated by commas. */
  readonly repeatable?: boolean;
  /** @throws BadValue */
  readonly parse: (texts: readonly string[], baseDir: string) => T;
  /** The value when neither given nor defaulted. */
  readonly unset: () => T;
}

type Basics = Pick<OptionSpec, 'name' | 'help'> & { readonly default?: string; readonly arg?: string };

const SERVE: readonly ConfiguredCommand[] = ['serve'];
/** Commands that run an agent. */
const AGENT: readonly ConfiguredCommand[] = ['serve', 'run'];
const PRUNE: readonly ConfiguredCommand[] = ['serve', 'run', 'prune'];
const ALL: readonly ConfiguredCommand[] = ['serve', 'run', ...STORE_COMMANDS];
/** Node's timers hold 31 bits of milliseconds; a longer one would fire at once. */
const TIMER_MAX = '24d';

const last = (texts: readonly string[]): string => texts[texts.length - 1] ?? '';
const impossible = (): never => {
  throw new Error('an option with a default has no unset value');
};

function duration(basics: Basics & { default: string }, bounds: Bounds): OptionSpec<number> {
  const parse = (texts: readonly string[]): number => parseDuration(last(texts), { max: TIMER_MAX, ...bounds });
  return { arg: 'DURATION', ...basics, kind: 'duration', commands: AGENT, parse, unset: impossible };
}

function size(basics: Basics & { default: string }, bounds: Bounds): OptionSpec<number> {
  const parse = (texts: readonly string[]): number => parseSize(last(texts), bounds);
  return { arg: 'SIZE', ...basics, kind: 'size', commands: AGENT, parse, unset: impossible };
}

function choice<T extends string>(
  basics: Basics & { default: T },
  choices: readonly T[],
  commands: readonly ConfiguredCommand[],
): OptionSpec<T> {
  const parse = (texts: readonly string[]): T => parseChoice(last(texts), choices);
  return { arg: choices.join('|'), ...basics, kind: 'choice', commands, parse, unset: impossible };
}

/** By the field of `Config` they fill, so that the compiler asks for every one. */
export const OPTIONS: { readonly [K in keyof Config]-?: OptionSpec<Config[K]> } = {
  storeDir: {
    name: 'store',
    kind: 'path',
    arg: 'DIR',
    help: 'directory of the log (default: $XDG_STATE_HOME/acp-sidecar or ~/.local/state/acp-sidecar)',
    commands: ALL,
    parse: (texts, baseDir) => parsePath(last(texts), baseDir),
    unset: defaultStoreDir,
  },
  listen: {
    name: 'listen',
    kind: 'address',
    arg: 'ADDR',
    default: '127.0.0.1:0',
    help: 'where clients connect: HOST:PORT (port 0: any free one), ws://HOST:PORT, wss://HOST:PORT or unix:PATH',
    commands: SERVE,
    repeatable: true,
    parse: (texts) => someOf(splitList(texts)).map(parseAddress),
    unset: impossible,
  },
  tokenFile: {
    name: 'token-file',
    kind: 'path',
    arg: 'FILE',
    help: 'clients must show a token of this file; lines of: TOKEN [controller|observer] [name] [session=ID,...]; read again on SIGHUP',
    commands: SERVE,
    parse: (texts, baseDir) => parsePath(last(texts), baseDir),
    unset: () => undefined,
  },
  tlsCert: {
    name: 'tls-cert',
    kind: 'path',
    arg: 'FILE',
    help: 'PEM certificate (with its chain): every TCP address speaks TLS (wss://); read again on SIGHUP',
    commands: SERVE,
    parse: (texts, baseDir) => parsePath(last(texts), baseDir),
    unset: () => undefined,
  },
  tlsKey: {
    name: 'tls-key',
    kind: 'path',
    arg: 'FILE',
    help: 'PEM private key of --tls-cert',
    commands: SERVE,
    parse: (texts, baseDir) => parsePath(last(texts), baseDir),
    unset: () => undefined,
  },
  insecurePlaintext: {
    name: 'insecure-plaintext',
    kind: 'flag',
    help: 'allow an address that other machines reach without TLS, for use behind a TLS proxy',
    commands: SERVE,
    parse: (texts) => parseFlag(last(texts)),
    unset: () => false,
  },
  allowOrigins: {
    name: 'allow-origin',
    kind: 'list',
    arg: 'ORIGIN',
    help: 'let web pages of this origin connect, like https://app.example.com; all others are refused',
    commands: SERVE,
    repeatable: true,
    parse: (texts) => splitList(texts).map(parseOrigin),
    unset: () => [],
  },
  maxConnections: {
    name: 'max-connections',
    kind: 'count',
    arg: 'N',
    default: '4096',
    help: 'most clients connected at once; further ones are refused',
    commands: SERVE,
    parse: (texts) => parseCount(last(texts), 1),
    unset: impossible,
  },
  maxOpenSessions: {
    name: 'max-open-sessions',
    kind: 'count',
    arg: 'N',
    default: '1024',
    help: 'sessions kept in memory; beyond it those that nobody uses are opened from the log when they are needed',
    commands: AGENT,
    parse: (texts) => parseCount(last(texts), 1),
    unset: impossible,
  },
  onBusy: choice(
    { name: 'on-busy', default: 'queue', help: 'what a prompt meets while a turn runs in its session' },
    BUSY_POLICIES,
    AGENT,
  ),
  approvalTimeoutMs: {
    name: 'approval-timeout',
    kind: 'duration',
    arg: 'DURATION',
    help: 'reject an approval nobody answered for so long (default: wait for ever); it never consents',
    commands: AGENT,
    parse: (texts) => parseDuration(last(texts), { min: '1ms', max: TIMER_MAX }),
    unset: () => undefined,
  },
  heartbeatMs: duration(
    {
      name: 'heartbeat',
      default: '30s',
      help: 'ping clients so often; one that misses two, and takes no byte meanwhile, is removed',
    },
    { min: '10ms' },
  ),
  maxMessageBytes: size(
    { name: 'max-message-bytes', default: '64MiB', help: 'largest message from the agent or a client' },
    { min: '64KiB', max: '256MiB' },
  ),
  clientBufferBytes: size(
    {
      name: 'client-buffer-bytes',
      default: '256KiB',
      help: 'bytes waiting for one client before it is served from the log',
    },
    { min: '1KiB', max: '1GiB' },
  ),
  clientCapabilities: {
    name: 'client-capabilities',
    kind: 'json',
    arg: 'JSON',
    help: 'ACP clientCapabilities the agent is initialised with (default: those of the first client)',
    commands: AGENT,
    parse: (texts) => parseJsonObject(last(texts)),
    unset: () => undefined,
  },
  restore: {
    name: 'restore',
    kind: 'list',
    arg: 'WAYS',
    default: 'resume,load,prime',
    help: 'how a session is brought back into a new agent process, in this order',
    commands: AGENT,
    parse: (texts) => [...new Set(someOf(splitList([last(texts)])).map((way) => parseChoice(way, RESTORE_WAYS)))],
    unset: impossible,
  },
  idleExitMs: {
    name: 'idle-exit',
    kind: 'duration',
    arg: 'DURATION',
    default: '10m',
    help: 'the daemon leaves after so long without clients, turns and open approvals',
    commands: ['run'],
    parse: (texts) => parseDuration(last(texts), { min: '50ms', max: TIMER_MAX }),
    unset: impossible,
  },
  agentIdleMs: {
    name: 'agent-idle',
    kind: 'duration',
    arg: 'DURATION',
    help: 'stop an agent in which nothing ran for so long, if it can restore its sessions (default: never)',
    commands: AGENT,
    parse: (texts) => parseDuration(last(texts), { min: '1ms', max: TIMER_MAX }),
    unset: () => undefined,
  },
  drainMs: duration(
    { name: 'drain', default: '10s', help: 'on SIGTERM, time for running turns to end before they are cancelled' },
    {},
  ),
  stallMs: duration(
    { name: 'stall', default: '60s', help: 'on a full disk, time until the agent is ended instead of held back' },
    { min: '1ms' },
  ),
  traceFile: {
    name: 'trace',
    kind: 'path',
    arg: 'FILE',
    help: 'record every message of clients and agent for a bug report, without credentials but with what was said',
    commands: AGENT,
    parse: (texts, baseDir) => parsePath(last(texts), baseDir),
    unset: () => undefined,
  },
  retain: {
    name: 'retain',
    kind: 'list',
    arg: 'LIMITS',
    help: 'keep idle sessions so long, so many, in so many bytes, like 30d,500,10GiB; the others are deleted (default: keep all)',
    commands: PRUNE,
    parse: (texts) => parseRetain(someOf(splitList([last(texts)]))),
    unset: () => ({}),
  },
  retainEvents: {
    name: 'retain-events',
    kind: 'list',
    arg: 'LIMITS',
    help: 'keep of each session the events of so long, so many, so many bytes, like 30d,100000,1GiB; what is before goes (default: keep all)',
    commands: PRUNE,
    parse: (texts) => parseRetain(someOf(splitList([last(texts)]))),
    unset: () => ({}),
  },
  logLevel: choice(
    { name: 'log-level', default: 'info', help: 'least important log lines to write to stderr' },
    LOG_LEVELS,
    ALL,
  ),
  redact: {
    name: 'redact',
    kind: 'list',
    arg: 'REGEXP',
    help: 'regular expression of what is taken out of log lines and of the stderr that errors tell, like sk-[A-Za-z0-9]+ for keys that an agent prints',
    commands: AGENT,
    repeatable: true,
    parse: (texts) => texts.map(parsePattern),
    unset: () => [],
  },
};

export const OPTION_FIELDS = Object.keys(OPTIONS) as (keyof Config)[];

export function optionsOf(command: ConfiguredCommand): OptionSpec[] {
  return OPTION_FIELDS.map((field): OptionSpec => OPTIONS[field]).filter((spec) => spec.commands.includes(command));
}

export function envName(spec: Pick<OptionSpec, 'name'>): string {
  return `ACP_SIDECAR_${spec.name.replaceAll('-', '_').toUpperCase()}`;
}

/** Key in the config file: `onBusy` for `--on-busy`. */
export function fileKey(spec: Pick<OptionSpec, 'name'>): string {
  return spec.name.replace(/-([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

/** Texts by option name, as given on the command line or in a file. */
export type GivenTexts = Readonly<Record<string, readonly string[]>>;

function someOf(items: string[]): string[] {
  if (items.length === 0) throw new BadValue('is empty');
  return items;
}

function parsePath(text: string, baseDir: string): string {
  if (text === '' || text.includes('\0')) throw new BadValue('is not a path');
  return resolve(baseDir, text.startsWith('~/') ? join(homeDir(), text.slice(2)) : text);
}
