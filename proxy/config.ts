/**
 * Reading the configuration: flag > environment > config file > default. An empty environment variable counts as not
 * set. Environment variables that are not in the table are ignored: Kubernetes makes `ACP_SIDECAR_SERVICE_HOST` and
 * others of a service that is named like us.
 */
import { resolve } from 'node:path';
import { CommandError } from './cli/exit-code.ts';
import { BadValue, isLoopback } from './option-values.ts';
import {
  type Config,
  type ConfiguredCommand,
  envName,
  fileKey,
  type GivenTexts,
  OPTION_FIELDS,
  OPTIONS,
  type OptionSpec,
} from './options.ts';

export type { BusyPolicy, Config, LogLevel, RestoreWay } from './options.ts';
export type { ListenAddress } from './option-values.ts';

export interface ConfigSources {
  readonly flags: GivenTexts;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** `--config FILE`; also `ACP_SIDECAR_CONFIG`. */
  readonly configFile?: string | undefined;
  readonly cwd: string;
}

/** @throws CommandError (usage) that names the option, where it was set and what would be right. */
export async function loadConfig(command: ConfiguredCommand, sources: ConfigSources): Promise<Config> {
  const file = sources.configFile ?? (sources.env['ACP_SIDECAR_CONFIG'] || undefined);
  let fromFile: { readonly texts: GivenTexts; readonly dir: string; readonly path: string } | undefined;
  if (file !== undefined) {
    // Lazily: the file's schema is the only user of zod on the way to a running server.
    const { readConfigFile } = await import('./config-file.ts');
    fromFile = readConfigFile(resolve(sources.cwd, file));
  }
  const config: Partial<Record<keyof Config, unknown>> = {};
  for (const field of OPTION_FIELDS) {
    const spec: OptionSpec = OPTIONS[field];
    const applies = spec.commands.includes(command);
    const flag = sources.flags[spec.name];
    const env = sources.env[envName(spec)];
    const inFile = fromFile?.texts[spec.name];
    if (applies && flag) config[field] = valueOf(spec, flag, sources.cwd, `--${spec.name}`);
    else if (applies && env) config[field] = valueOf(spec, [env], sources.cwd, envName(spec));
    else if (applies && fromFile && inFile) {
      config[field] = valueOf(spec, inFile, fromFile.dir, `${fileKey(spec)} in ${fromFile.path}`);
    } else config[field] = spec.default === undefined ? spec.unset() : spec.parse([spec.default], sources.cwd);
  }
  const complete = config as unknown as Config;
  if (command === 'serve') checkTrust(complete);
  return complete;
}

function valueOf(spec: OptionSpec, texts: readonly string[], baseDir: string, origin: string): unknown {
  try {
    return spec.parse(texts, baseDir);
  } catch (error) {
    if (!(error instanceof BadValue)) throw error;
    throw new CommandError('usage', `${origin}: ${JSON.stringify(texts.join(','))} ${error.message}`);
  }
}

/** Nothing leaves this machine unprotected unless that was asked for in words. */
function checkTrust(config: Config): void {
  const tls = config.tlsCert !== undefined;
  for (const address of config.listen) {
    if (address.kind === 'unix' || !address.secure || tls) continue;
    throw new CommandError('usage', `--listen wss://${address.host}:${address.port} needs --tls-cert and --tls-key`);
  }
  for (const address of config.listen) {
    if (address.kind === 'unix' || isLoopback(address)) continue;
    const where = `--listen ${address.host}:${address.port} can be reached from other machines`;
    if (config.tokenFile === undefined) {
      throw new CommandError('usage', `${where} and needs tokens`, 'give --token-file FILE, or listen on 127.0.0.1');
    }
    if (!tls && !config.insecurePlaintext) {
      throw new CommandError(
        'usage',
        `${where} and would send tokens unencrypted`,
        'give --tls-cert and --tls-key, listen on 127.0.0.1 behind a TLS proxy, or accept the risk with --insecure-plaintext',
      );
    }
  }
}
