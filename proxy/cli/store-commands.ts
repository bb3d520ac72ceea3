/** The commands that work on a store, as the command line knows them. Each module is imported when its command runs. */
import { Command, InvalidArgumentError } from 'commander';
import type { Config, StoreCommand } from '../options.ts';
import { addTableOptions, configOf } from './command-options.ts';

interface Given {
  readonly config: Config;
  readonly storeDir: string;
  readonly args: readonly (string | undefined)[];
  readonly options: Readonly<Record<string, unknown>>;
}

interface StoreCommandSpec {
  readonly about: string;
  /** `<ID>`: needed, `[ID]`: may be left out. */
  readonly arg?: readonly [name: string, about: string];
  /** What `--json` prints, for commands that have it. */
  readonly json?: string;
  /** The command line of an agent may follow `--`: the store that `run` keeps for it. */
  readonly ofAgent?: true;
  readonly options?: readonly (readonly [flags: string, about: string, parse?: (text: string) => unknown])[];
  /** The exit code, 0 when there is none. */
  readonly run: (given: Given) => Promise<number | void>;
}

const ID = ['<ID>', 'session id, as `acp-sidecar sessions` lists it'] as const;
const ID_OR_ALL = ['[ID]', 'session id; all sessions when it is left out'] as const;

const SPECS: Readonly<Partial<Record<StoreCommand, StoreCommandSpec>>> = {
  history: {
    about: 'print the chat of a session: messages and tool calls',
    arg: ID,
    json: 'print one object a line',
    options: [['--limit <N>', 'only the latest N', parseCount]],
    run: async ({ storeDir, args, options }) => {
      const limit = typeof options['limit'] === 'number' ? options['limit'] : undefined;
      await (await import('./history.ts')).printHistory(storeDir, args[0] ?? '', {
        json: isSet(options, 'json'),
        limit,
      });
    },
  },
  tail: {
    about: 'follow a session: its last events, then each as it is written',
    arg: ID,
    json: 'print one object a line',
    run: async ({ storeDir, args, options }) =>
      (await import('./tail.ts')).tailSession(storeDir, args[0] ?? '', isSet(options, 'json')),
  },
  export: {
    about: 'write a session as one file of JSON lines, with a checksum',
    arg: ID,
    options: [['--out <FILE>', 'where to (default: stdout)']],
    run: async ({ storeDir, args, options }) =>
      (await import('./export.ts')).exportToFile(storeDir, args[0] ?? '', textOf(options, 'out')),
  },
  import: {
    about: 'make a session of an exported file; prints its id',
    arg: ['<FILE>', 'what `acp-sidecar export` wrote'],
    options: [['--as <ID>', 'another id than the file says']],
    run: async ({ storeDir, args, options }) =>
      (await import('./import.ts')).importFile(storeDir, args[0] ?? '', textOf(options, 'as')),
  },
  fork: {
    about: 'make a session that shares everything up to the end of a finished turn; prints its id',
    arg: ID,
    options: [['--at <EVENT>', 'eventId of the end of a turn (default: the last finished one)']],
    run: async ({ storeDir, args, options }) =>
      (await import('./fork.ts')).forkSession(storeDir, args[0] ?? '', textOf(options, 'at')),
  },
  prune: {
    about: 'delete what --retain and --retain-events do not keep; never what is in use',
    arg: ID_OR_ALL,
    json: 'print one object a line',
    options: [['--dry-run', 'only tell what would go']],
    run: async ({ config, args, options }) =>
      (await import('./prune.ts')).pruneStore(config, args[0], {
        dryRun: isSet(options, 'dryRun'),
        json: isSet(options, 'json'),
      }),
  },
  delete: {
    about: 'delete a session and its events, for everyone',
    arg: ID,
    run: async ({ storeDir, args }) => (await import('./delete.ts')).deleteSession(storeDir, args[0] ?? ''),
  },
  verify: {
    about: 'look at every record, the index and the cached histories; exit code 4 when something is wrong',
    arg: ID_OR_ALL,
    json: 'print one object a line',
    run: async ({ storeDir, args, options }) =>
      (await import('./verify.ts')).verify(storeDir, args[0], isSet(options, 'json')),
  },
  repair: {
    about: 'close what the end of a log leaves open, as using the session would',
    arg: ID,
    json: 'print the events that were added, one a line',
    run: async ({ storeDir, args, options }) =>
      (await import('./repair.ts')).repairSession(storeDir, args[0] ?? '', isSet(options, 'json')),
  },
  backup: {
    about: 'copy the store to a new directory, also while it is in use; the copy is a store',
    arg: ['<DIR>', 'a directory that does not exist yet, or is empty'],
    run: async ({ storeDir, args }) => (await import('./backup.ts')).backup(storeDir, args[0] ?? ''),
  },
  status: {
    about: 'tell what the sidecar of the store does; exit code 1 when none runs',
    ofAgent: true,
    json: 'print one object',
    run: async ({ storeDir, options }) => (await import('./status.ts')).printStatus(storeDir, isSet(options, 'json')),
  },
  stop: {
    about: 'end the sidecar of the store in good order; exit code 1 when none runs',
    ofAgent: true,
    run: async ({ storeDir }) => (await import('./stop.ts')).stopServer(storeDir),
  },
};

/** @param newCommand makes a command that ends as all do; `finish` takes its exit code */
export function storeCommands(newCommand: (name: string) => Command, finish: (code: number) => void): Command[] {
  return Object.entries(SPECS).map(([name, spec]) => {
    const command = newCommand(name).description(spec.about);
    if (spec.arg) command.argument(...spec.arg);
    if (spec.ofAgent) command.argument('[agent...]', 'the agent of `run`, after --: its store');
    if (spec.json !== undefined) command.option('--json', spec.json);
    for (const [flags, about, parse] of spec.options ?? []) {
      if (parse) command.option(flags, about, parse);
      else command.option(flags, about);
    }
    command.action(async (...given: unknown[]) => {
      const config = await configOf(command, name as StoreCommand);
      const args = spec.arg ? [typeof given[0] === 'string' ? given[0] : undefined] : [];
      const agent = spec.ofAgent && Array.isArray(given[0]) ? (given[0] as string[]) : [];
      const storeDir = agent.length > 0 ? await storeOfAgent(agent, config.storeDir) : config.storeDir;
      finish((await spec.run({ config, storeDir, args, options: command.opts() })) ?? 0);
    });
    return addTableOptions(command, name as StoreCommand);
  });
}

async function storeOfAgent([command = '', ...args]: readonly string[], named: string): Promise<string> {
  const { resolvedAgent, storeDirOf } = await import('../daemon/daemon-place.ts');
  return storeDirOf(named, resolvedAgent({ command, args }, process.cwd()));
}

function isSet(options: Readonly<Record<string, unknown>>, name: string): boolean {
  return options[name] === true;
}

function textOf(options: Readonly<Record<string, unknown>>, name: string): string | undefined {
  const value = options[name];
  return typeof value === 'string' ? value : undefined;
}

function parseCount(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 1) throw new InvalidArgumentError('it must be a whole number above 0');
  return value;
}
