/**
 * Where the daemon of a store and an agent is found. Everybody who starts the same agent on the same store computes the
 * same names; nothing has to be looked up.
 *
 *   store    --store, else <state>/acp-sidecar/run/<command>-<hash of the command line>
 *   socket   <runtime>/<hash of store and command line>.sock, in a directory of mode 0700
 */
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { basename, isAbsolute, join, resolve } from 'node:path';
import { prepareStoreDir } from '../../storage/store-lock.ts';
import { homeDir } from '../home-dir.ts';
import { OPTIONS } from '../options.ts';

export interface AgentCommand {
  readonly command: string;
  readonly args: readonly string[];
}

export interface DaemonPlace {
  readonly storeDir: string;
  /** ACP, a message a line. */
  readonly socket: string;
  /** Directory of the lock that is held while a daemon is started. */
  readonly startDir: string;
  readonly logFile: string;
}

/** sun_path is 108 bytes on Linux and 104 elsewhere, with its closing NUL. */
const SOCKET_PATH_BYTES = 103;

/** A command given by a path is the same from everywhere. */
export function resolvedAgent(agent: AgentCommand, cwd: string): AgentCommand {
  const { command, args } = agent;
  return { command: command.includes('/') ? resolve(cwd, command) : command, args };
}

/** The store of an agent: the one that was named, else one of its own below the default one. */
export function storeDirOf(named: string, agent: AgentCommand): string {
  if (named !== OPTIONS.storeDir.unset()) return named;
  const slug = basename(agent.command)
    .replace(/[^A-Za-z0-9._-]+/g, '-')
    .slice(0, 40);
  return join(named, 'run', `${slug}-${digest([agent.command, ...agent.args], 10)}`);
}

/** @throws StoreOpenError when the directory for the sockets is somebody else's */
export function daemonPlace(storeDir: string, agent: AgentCommand, env: NodeJS.ProcessEnv = process.env): DaemonPlace {
  const name = digest([storeDir, agent.command, ...agent.args], 16);
  const dir = prepareStoreDir(runtimeDir(env, name), 'the directory for sockets');
  return {
    storeDir,
    socket: join(dir, `${name}.sock`),
    startDir: join(dir, `${name}.start`),
    logFile: join(storeDir, 'daemon.log'),
  };
}

function runtimeDir(env: NodeJS.ProcessEnv, name: string): string {
  const given = env['XDG_RUNTIME_DIR'];
  const dir = given !== undefined && isAbsolute(given) ? join(given, 'acp-sidecar') : undefined;
  if (dir !== undefined && Buffer.byteLength(join(dir, `${name}.sock`)) <= SOCKET_PATH_BYTES) return dir;
  // Not os.tmpdir(), which two processes may see differently.
  return `/tmp/acp-sidecar-${process.getuid?.() ?? 0}`;
}

/** The agent runs in the home directory: its sessions have each their own cwd, and no editor's is more right. */
export function daemonCwd(): string {
  const home = homeDir();
  return existsSync(home) ? home : '/';
}

function digest(parts: readonly string[], characters: number): string {
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, characters);
}
