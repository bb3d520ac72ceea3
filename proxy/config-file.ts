/** The config file: one JSON object whose keys are the options in camel case. Relative paths are relative to it. */
import { readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { z } from 'zod';
import { CommandError } from './cli/exit-code.ts';
import { fileKey, type GivenTexts, OPTION_FIELDS, OPTIONS, type OptionSpec } from './options.ts';

const TEXT = z.string();
const TEXTS = z.union([TEXT, z.array(TEXT)]);

function schemaOf(spec: OptionSpec): z.ZodType {
  switch (spec.kind) {
    case 'flag':
      return z.boolean();
    case 'json':
      return z.record(z.string(), z.unknown());
    case 'size':
    case 'count':
      return z.union([TEXT, z.int().nonnegative()]);
    case 'list':
    case 'address':
      return TEXTS;
    default:
      return TEXT;
  }
}

function textsOf(spec: OptionSpec, value: unknown): string[] {
  if (spec.kind === 'json') return [JSON.stringify(value)];
  if (Array.isArray(value)) return spec.repeatable ? value.map(String) : [value.join(',')];
  return [String(value)];
}

/** @throws CommandError (usage) when it cannot be read, is not JSON or holds what is no option. */
export function readConfigFile(path: string): { texts: GivenTexts; dir: string; path: string } {
  const specs = OPTION_FIELDS.map((field): OptionSpec => OPTIONS[field]);
  let value: unknown;
  try {
    value = JSON.parse(readFileSync(path, 'utf8'));
  } catch (error) {
    const why = error instanceof SyntaxError ? 'is not JSON' : 'cannot be read';
    throw new CommandError('usage', `config file ${path} ${why}: ${(error as Error).message}`);
  }
  const shape = Object.fromEntries(specs.map((spec) => [fileKey(spec), schemaOf(spec).optional()]));
  const checked = z.strictObject(shape).safeParse(value);
  if (!checked.success) {
    const known = `keys: ${specs.map(fileKey).join(', ')}`;
    throw new CommandError('usage', `config file ${path}:\n${z.prettifyError(checked.error)}`, known);
  }
  const texts: Record<string, readonly string[]> = {};
  for (const spec of specs) {
    const found = checked.data[fileKey(spec)];
    if (found !== undefined) texts[spec.name] = textsOf(spec, found);
  }
  return { texts, dir: dirname(path), path };
}
