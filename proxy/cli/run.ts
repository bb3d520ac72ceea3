/** `acp-sidecar run`: what an editor starts instead of its agent; agent and log live in a background daemon. */
import { setTimeout as sleep } from 'node:timers/promises';
import { resolve } from 'node:path';
import { StoreOpenError } from '../../storage/store-error.ts';
import { timesOf } from '../client/resumable-stream.ts';
import { bridgeStdio } from '../client/stdio-bridge.ts';
import { openUnixTransport } from '../client/unix-transport.ts';
import { type ConfigSources, loadConfig } from '../config.ts';
import { type AgentCommand, type DaemonPlace, storeDirOf, daemonPlace, resolvedAgent } from '../daemon/daemon-place.ts';
import { DaemonFailure, joinDaemon, retireOlder } from '../daemon/join-daemon.ts';
import { CommandError } from './exit-code.ts';

const GIVE_UP_MS = 60_000;
/** A start of the daemon may take this long. */
const CONNECT_MS = 40_000;
/** An editor that leaves meanwhile: what is being started is not left half way, if it comes to an end soon. */
const LEAVE_MS = 5000;

export async function runAgent(given: ConfigSources, command: AgentCommand): Promise<number> {
  const agent = resolvedAgent(command, given.cwd);
  const config = await loadConfig('run', given);
  const storeDir = storeDirOf(config.storeDir, agent);
  const place = placeOf(storeDir, agent);
  const { flags, cwd, configFile } = given;
  const sources = { flags, cwd, configFile: configFile === undefined ? undefined : resolve(cwd, configFile) };
  const program = process.argv[1] ?? '';
  let failure: number | undefined;
  let first = true;
  let joining: Promise<unknown> | undefined;
  const connected = async (): ReturnType<typeof joinDaemon> => {
    if (first) await retireOlder(place);
    first = false;
    const joined = joinDaemon({ sources, agent, place }, program);
    joining = joined.catch(() => undefined);
    try {
      return await joined;
    } catch (error) {
      if (error instanceof DaemonFailure) failure = error.exitCode;
      throw error;
    }
  };
  const times = { ...timesOf({ giveUpMs: GIVE_UP_MS }), connectMs: CONNECT_MS };
  const openTransport = openUnixTransport(place.socket, connected);
  const code = await bridgeStdio({ openTransport, where: 'the daemon', times });
  await Promise.race([joining, sleep(LEAVE_MS)]);
  return code === 0 ? 0 : (failure ?? code);
}

function placeOf(storeDir: string, agent: AgentCommand): DaemonPlace {
  try {
    return daemonPlace(storeDir, agent);
  } catch (error) {
    if (!(error instanceof StoreOpenError)) throw error;
    throw new CommandError('failure', error.message, 'XDG_RUNTIME_DIR says where sockets lie');
  }
}
