/**
 * The command line. Each command's module is imported when it runs, so that `serve` loads no more than it needs.
 * stdout carries only what a command is asked for; everything else goes to stderr.
 */
import { Command, CommanderError } from 'commander';
import { isDamage } from '../../storage/store-error.ts';
import { VERSION } from '../version.ts';
import { addTableOptions, configOf, sourcesOf } from './command-options.ts';
import { CommandError, EXIT_CODES, exitCode } from './exit-code.ts';
import { storeCommands } from './store-commands.ts';

const ABOUT =
  'A session proxy for the Agent Client Protocol (ACP). It runs your ACP agent, lets any number of ACP clients connect to ' +
  'it, and keeps every session in a log: a client that was cut off comes back and gets exactly what it missed.';

const SERVE_HELP = `
Example:
  $ acp-sidecar serve --listen 127.0.0.1:7777 -- my-agent --acp
  {"event":"ready","endpoints":["ws://127.0.0.1:7777/acp"],...}

The line on stdout says where ACP clients connect; logs go to stderr. SIGTERM and Ctrl-C end it in good order.
Each option can also be set as ACP_SIDECAR_<OPTION> (--on-busy: ACP_SIDECAR_ON_BUSY) or in the file of --config.`;

const EXIT_HELP = `\nExit codes:\n${Object.values(EXIT_CODES)
  .map(({ code, meaning }) => `  ${code}  ${meaning}`)
  .join('\n')}`;

/** Commander ends by throwing instead of leaving, so that every way out passes `main`. */
function newCommand(name: string): Command {
  return new Command(name).exitOverride().showHelpAfterError('(--help shows what there is)');
}

function serveCommand(finish: (code: number) => void): Command {
  const serve = newCommand('serve')
    .description('run an agent and serve it to ACP clients until a signal ends it')
    .usage('[options] -- <agent> [args...]')
    .argument('<agent>', "the agent's command: a program that speaks ACP on stdin and stdout")
    .argument('[args...]', "the agent's arguments")
    .passThroughOptions()
    .addHelpText('after', SERVE_HELP)
    .action(async (agent: string, args: string[]) => {
      const config = await configOf(serve, 'serve');
      const { serveAgent } = await import('./serve.ts');
      finish(await serveAgent(config, { command: agent, args }));
    });
  return addTableOptions(serve, 'serve');
}

function runCommand(finish: (code: number) => void): Command {
  const run = newCommand('run')
    .description('speak ACP on stdio with an agent that lives in a background daemon, shared by all editors')
    .usage('[options] -- <agent> [args...]')
    .argument('<agent>', "the agent's command: a program that speaks ACP on stdin and stdout")
    .argument('[args...]', "the agent's arguments")
    .passThroughOptions()
    .action(async (agent: string, args: string[]) => {
      const { runAgent } = await import('./run.ts');
      finish(await runAgent(sourcesOf(run, 'run'), { command: agent, args }));
    });
  return addTableOptions(run, 'run');
}

/** What `run` starts in the background; its order comes on stdin. */
function daemonCommand(finish: (code: number) => void): Command {
  const name = 'daemon';
  return newCommand(name).action(async () => {
    const { runDaemon } = await import('./daemon.ts');
    finish(await runDaemon());
  });
}

function connectCommand(finish: (code: number) => void): Command {
  const connect = newCommand('connect')
    .description('speak ACP on stdio with a sidecar somewhere else; drops of the network go unnoticed')
    .argument('<target>', 'ws://HOST:PORT/acp, wss://..., unix:PATH or the path of a Unix socket')
    .option('--token-file <FILE>', 'file with the token to show (else ACP_SIDECAR_TOKEN)')
    .option('--name <NAME>', 'shown to the other clients of a session')
    .option(
      '--heartbeat <DURATION>',
      'ask a silent sidecar so often whether it is there; twice, then it is lost',
      '15s',
    )
    .option('--give-up <DURATION>', 'how long to try at the start; later it is tried for ever', '30s')
    .action(async (target: string) => {
      const { connectStdio } = await import('./connect.ts');
      finish(await connectStdio(target, connect.opts()));
    });
  return connect;
}

function replayTraceCommand(): Command {
  const replay = newCommand('replay-trace')
    .description('play the agent of a trace again, as an agent on stdio; at a terminal, print the trace')
    .argument('<FILE>', 'what `acp-sidecar serve --trace FILE` wrote')
    .option('--print', 'print the trace also when it does not go to a terminal')
    .option('--life <N>', 'which process of the agent to play, when it was started more than once', '1')
    .option('--real-time', 'keep the pauses of the recording')
    .action(async (file: string) => {
      const { replayTrace } = await import('./replay-trace.ts');
      await replayTrace(file, replay.opts());
    });
  return replay;
}

/** A command that only reads the store, also beside a running server. */
function readCommand(name: 'sessions' | 'show' | 'events' | 'approvals', about: string, jsonAbout: string): Command {
  const command = newCommand(name).description(about).option('--json', jsonAbout);
  const id = name === 'approvals' ? '[ID]' : '<ID>';
  if (name !== 'sessions') command.argument(id, 'session id, as `acp-sidecar sessions` lists it');
  command.action(async (...given: unknown[]) => {
    const config = await configOf(command, name);
    const session = typeof given[0] === 'string' ? given[0] : '';
    const json = command.opts<{ json?: boolean }>().json === true;
    if (name === 'sessions') await (await import('./sessions.ts')).listSessions(config.storeDir, json);
    else if (name === 'show') await (await import('./show.ts')).showSession(config.storeDir, session, json);
    else if (name === 'approvals') await (await import('./approvals.ts')).listApprovals(config.storeDir, session, json);
    else await (await import('./events.ts')).printEvents(config.storeDir, session, json);
  });
  return addTableOptions(command, name);
}

function program(finish: (code: number) => void): Command {
  const made = newCommand('acp-sidecar')
    .description(ABOUT)
    .version(VERSION, '--version', 'print the version')
    .enablePositionalOptions()
    .addCommand(serveCommand(finish))
    .addCommand(runCommand(finish))
    .addCommand(connectCommand(finish))
    .addCommand(daemonCommand(finish), { hidden: true })
    .addCommand(readCommand('sessions', 'list the sessions of a store, newest first', 'print one array'))
    .addCommand(readCommand('show', 'tell what a session is and where it stands', 'print one object'))
    .addCommand(readCommand('events', 'print the events of a session', 'print one object a line'))
    .addCommand(readCommand('approvals', 'list what agents wait for, in one session or all', 'print one array'))
    .addCommand(replayTraceCommand())
    .addHelpText('after', EXIT_HELP);
  for (const command of storeCommands(newCommand, finish)) made.addCommand(command);
  return made;
}

function report(error: unknown): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : exitCode('usage');
  if (error instanceof CommandError) {
    process.stderr.write(`acp-sidecar: ${error.message}\n${error.hint === undefined ? '' : `  ${error.hint}\n`}`);
    return exitCode(error.reason);
  }
  if (error instanceof Error && 'syscall' in error) {
    // The operating system's word on a path or a device says all there is to say.
    process.stderr.write(`acp-sidecar: ${error.message}\n`);
    return exitCode('failure');
  }
  if (isDamage(error)) {
    process.stderr.write(
      `acp-sidecar: the store is damaged: ${(error as Error).message}\n  restore it from a backup\n`,
    );
    return exitCode('store_failed');
  }
  process.stderr.write(`acp-sidecar: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
  return exitCode('failure');
}

/** Runs a command line (without `node` and the script) and resolves to its exit code. */
async function main(args: readonly string[]): Promise<number> {
  let code = 0;
  try {
    await program((result) => {
      code = result;
    }).parseAsync([...args], { from: 'user' });
  } catch (error) {
    code = report(error);
  }
  return code;
}

// A reader that has seen enough (`| head`) closes the pipe; that is not a failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(0);
  process.exit(report(error));
});
void main(process.argv.slice(2)).then((code) => process.exit(code));
