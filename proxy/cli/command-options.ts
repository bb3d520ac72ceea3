/** Turns the option table into commander options and what commander found into a `Config`. */
import { type Command, Option } from 'commander';
import { type Config, type ConfigSources, loadConfig } from '../config.ts';
import { type ConfiguredCommand, type GivenTexts, optionsOf } from '../options.ts';

function collect(text: string, before: readonly string[] | undefined): readonly string[] {
  return [...(before ?? []), text];
}

function describe(help: string, standard: string | undefined): string {
  return standard === undefined ? help : `${help} (default: ${standard})`;
}

/** Adds every option that the table gives to `name`, and `--config`. */
export function addTableOptions(command: Command, name: ConfiguredCommand): Command {
  for (const spec of optionsOf(name)) {
    const flags = spec.arg === undefined ? `--${spec.name}` : `--${spec.name} <${spec.arg}>`;
    const option = new Option(flags, describe(spec.help, spec.default) + (spec.repeatable ? '; repeatable' : ''));
    if (spec.arg !== undefined) option.argParser(collect);
    command.addOption(option);
  }
  return command.addOption(
    new Option('--config <FILE>', 'JSON file with any of these options, like {"onBusy": "reject"}'),
  );
}

function isTexts(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((item) => typeof item === 'string');
}

/** @throws CommandError (usage) */
export function configOf(command: Command, name: ConfiguredCommand): Promise<Config> {
  return loadConfig(name, sourcesOf(command, name));
}

/** What the command line says, before it is understood. */
export function sourcesOf(command: Command, name: ConfiguredCommand): ConfigSources {
  const flags: Record<string, readonly string[]> = {};
  const values = command.opts<Record<string, unknown>>();
  for (const spec of optionsOf(name)) {
    const value = values[new Option(`--${spec.name}`).attributeName()];
    if (value === true) flags[spec.name] = ['true'];
    else if (isTexts(value)) flags[spec.name] = value;
  }
  const file = values['config'];
  return {
    flags: flags satisfies GivenTexts,
    env: process.env,
    configFile: typeof file === 'string' ? file : undefined,
    cwd: process.cwd(),
  };
}
