/**
 * The README's tables are those of the code. `UPDATE_README=1 npx vitest run test/docs.test.ts` rewrites them.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ERRORS } from '../protocol/error.ts';
import { EXIT_CODES } from '../proxy/cli/exit-code.ts';
import { envName, fileKey, OPTION_FIELDS, OPTIONS, type OptionSpec, STORE_COMMANDS } from '../proxy/options.ts';

const ROOT = join(import.meta.dirname, '..');
const README = join(ROOT, 'README.md');

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  return [line(head), `|${'---|'.repeat(head.length)}`, ...rows.map(line)].join('\n');
}

function optionRow(spec: OptionSpec): string[] {
  const flag = spec.arg === undefined ? `--${spec.name}` : `--${spec.name} ${spec.arg}`;
  const [only] = spec.commands.length === 1 ? spec.commands : [];
  const where = spec.commands.includes('sessions') ? 'all commands' : only === undefined ? '' : `\`${only}\` only`;
  const extra = [spec.repeatable ? 'repeatable' : '', where].filter(Boolean);
  const help = [spec.help, ...extra].join('; ');
  return [
    `\`${flag}\``,
    `\`${envName(spec)}\``,
    `\`${fileKey(spec)}\``,
    spec.default ? `\`${spec.default}\`` : '',
    help,
  ];
}

const RETRY = { safe: 'safe', later: 'later', no: 'no', see_code: 'see `data.code`' } as const;

const SECTIONS: Readonly<Record<string, string>> = {
  options: table(
    ['option', 'environment', 'config file', 'default', 'what it does'],
    OPTION_FIELDS.map((field) => optionRow(OPTIONS[field])),
  ),
  'exit-codes': table(
    ['code', 'meaning'],
    Object.values(EXIT_CODES).map(({ code, meaning }) => [String(code), meaning]),
  ),
  errors: table(
    ['`data.kind`', 'code', 'caused by', 'retry', 'meaning'],
    Object.entries(ERRORS).map(([kind, { code, fault, retry, text }]) => [
      `\`${kind}\``,
      String(code),
      fault,
      RETRY[retry],
      text,
    ]),
  ),
};

function section(readme: string, name: string): { start: number; end: number } {
  const open = `<!-- ${name} -->\n`;
  const start = readme.indexOf(open) + open.length;
  return { start, end: readme.indexOf(`\n<!-- /${name} -->`, start - 1) };
}

if (process.env['UPDATE_README'] !== undefined) {
  let readme = readFileSync(README, 'utf8');
  for (const [name, text] of Object.entries(SECTIONS)) {
    const { start, end } = section(readme, name);
    readme = readme.slice(0, start) + text + readme.slice(end);
  }
  writeFileSync(README, readme);
}

describe('README', () => {
  const readme = readFileSync(README, 'utf8');

  it.each(Object.keys(SECTIONS))('its table of %s is that of the code', (name) => {
    const { start, end } = section(readme, name);
    expect(readme.slice(start, end)).toBe(SECTIONS[name]);
  });

  it('begins with two commands of one line each, whose scripts exist; CI runs the second', () => {
    const commands = [...readme.matchAll(/```sh\n(.*)\n```/g)].map((found) => found[1] ?? '').slice(0, 2);
    const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { scripts: object };
    expect(commands).toHaveLength(2);
    for (const command of commands) {
      expect(command).toMatch(/^npm ci && /);
      for (const [, script = ''] of command.matchAll(/npm (?:run )?(\w+)/g)) {
        if (script !== 'ci') expect(scripts).toHaveProperty(script);
      }
    }
    expect(readFileSync(join(ROOT, '.ci/run'), 'utf8').trimEnd().split('\n').pop()).toBe(commands[1]);
  });

  it('names every command of the program', () => {
    const main = readFileSync(join(ROOT, 'proxy/cli/main.ts'), 'utf8');
    const commands = [...main.matchAll(/(?:newCommand|readCommand)\('([a-z]+)'/g)].map((found) => found[1] ?? '');
    expect(commands.length).toBeGreaterThan(3);
    for (const command of [...commands, ...STORE_COMMANDS]) expect(readme).toContain(`\`acp-sidecar ${command}`);
  });

  it('links only to files that exist', () => {
    const links = [...readme.matchAll(/\]\(([^)]+)\)/g)].map((found) => found[1] ?? '');
    const missing = links.filter((link) => !link.startsWith('https://') && !existsSync(join(ROOT, link)));
    expect(missing).toEqual([]);
  });
});
