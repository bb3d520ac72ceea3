/**
 * The README's tables are those of the code. `UPDATE_README=1 npx vitest run test/docs.test.ts` rewrites them.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ERRORS } from '../protocol/error.ts';
import { BOUNDS } from '../proxy/bounds.ts';
import { EXIT_CODES } from '../proxy/cli/exit-code.ts';
import { METRICS, type MetricSpec } from '../proxy/metric-table.ts';
import { Metrics } from '../proxy/metrics.ts';
import { envName, fileKey, OPTION_FIELDS, OPTIONS, type OptionSpec, STORE_COMMANDS } from '../proxy/options.ts';
import { VERSION } from '../proxy/version.ts';

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

function metricRow([name, spec]: [string, MetricSpec]): string[] {
  return [`\`${name}\``, spec.type, (spec.labels ?? []).map((label) => `\`${label}\``).join(', '), spec.help];
}

const RETRY = { safe: 'safe', later: 'later', no: 'no', see_code: 'see `data.code`' } as const;

const SECTIONS: Readonly<Record<string, string>> = {
  options: table(
    ['option', 'environment', 'config file', 'default', 'what it does'],
    OPTION_FIELDS.map((field) => optionRow(OPTIONS[field])),
  ),
  metrics: table(
    ['metric', 'type', 'labels', 'what it tells'],
    Object.entries(METRICS).map(([name, spec]) => metricRow([name, spec])),
  ),
  bounds: table(
    ['bound', 'limit', 'what happens there'],
    Object.entries(BOUNDS).map(([name, { limit, policy }]) => [`\`${name}\``, limit, policy]),
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
  return { start, end: Math.max(start, readme.indexOf(`\n<!-- /${name} -->`, start - 1)) };
}

if (process.env['UPDATE_README'] !== undefined) {
  let readme = readFileSync(README, 'utf8');
  for (const [name, text] of Object.entries(SECTIONS)) {
    const { start, end } = section(readme, name);
    const after = readme.slice(end);
    readme = `${readme.slice(0, start)}${text}${after.startsWith('\n') ? '' : '\n'}${after}`;
  }
  writeFileSync(README, readme);
}

type Scripts = Readonly<Record<string, string>>;

/** Options of single commands, which are not in the table. */
const COMMAND_OPTIONS = ['proxy/cli/main.ts', 'proxy/cli/store-commands.ts', 'proxy/cli/command-options.ts'].flatMap(
  (file) => [...readFileSync(join(ROOT, file), 'utf8').matchAll(/'--([a-z-]+)/g)].map((found) => found[1] ?? ''),
);

/** The anchor that a heading gets where the documents are shown. */
function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replace(/[^\w\- ]/g, '')
    .replaceAll(' ', '-');
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
    expect(readFileSync(join(ROOT, '.ci/run'), 'utf8').split('\n')).toContain(commands[1]);
  });

  it('CI runs the end-to-end tests under a newer Node too', () => {
    const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { scripts: Scripts };
    expect(readFileSync(join(ROOT, '.ci/run'), 'utf8').split('\n')).toContain('npm run test:node22');
    expect(scripts['test:node22']).toMatch(/--package=node@2[2-9]\.\d+\.\d+ /);
    const named = (scripts['test:node22'] ?? '').split(' ').filter((word) => word.startsWith('test/'));
    expect(named.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
  });

  it('names every command of the program', () => {
    const main = readFileSync(join(ROOT, 'proxy/cli/main.ts'), 'utf8');
    const commands = [...main.matchAll(/(?:newCommand|readCommand)\('([a-z-]+)'/g)]
      .map((found) => found[1] ?? '')
      .filter((name) => name !== 'acp-sidecar');
    expect(commands.length).toBeGreaterThan(3);
    for (const command of [...commands, ...STORE_COMMANDS]) expect(readme).toContain(`\`acp-sidecar ${command}`);
  });

  it('says how an agent is added to the image as the Dockerfile does', () => {
    const lines = /```dockerfile\n([^`]*)```/.exec(readme)?.[1]?.trimEnd().split('\n') ?? [];
    expect(lines).toHaveLength(3);
    const comments = readFileSync(join(ROOT, 'Dockerfile'), 'utf8').split('\n');
    for (const line of lines) expect(comments).toContain(`#   ${line}`);
  });

  it('names every entry point of the package, and no other', () => {
    const { exports } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { exports: object };
    const public_ = Object.keys(exports).filter((name) => name !== './package.json');
    const told = new Set([...readme.matchAll(/['`]acp-sidecar\/([a-z]+)['`]/g)].map((found) => `./${found[1]}`));
    expect([...told].toSorted()).toEqual(public_.toSorted());
  });

  it('uses only options that there are', () => {
    const known = new Set([...OPTION_FIELDS.map((field) => OPTIONS[field].name), ...COMMAND_OPTIONS]);
    const text = readme
      .replace(/^.*(docker|npm|npx|kubectl) .*$/gm, '')
      .replace(/`--init`|`--read-only --tmpfs \/tmp`/g, '');
    const used = [...text.matchAll(/(?<![\w-])--([a-z]+(?:-[a-z]+)*)/g)].map((found) => found[1] ?? '');
    const agents = ['experimental-acp', 'acp'];
    expect([...new Set(used)].filter((name) => !known.has(name) && !agents.includes(name))).toEqual([]);
  });
});

describe('the documents', () => {
  it.each(['README.md', 'CONTRIBUTING.md', 'CHANGELOG.md', 'protocol/SPEC.md', 'SECURITY.md'])(
    '%s links only to files and headings that exist',
    (file) => {
      const text = readFileSync(join(ROOT, file), 'utf8').replace(/```[\s\S]*?```/g, '');
      const anchors = [...text.matchAll(/^#+ (.*)$/gm)].map((found) => anchorOf(found[1] ?? ''));
      const links = [...text.matchAll(/\]\(([^)]+)\)/g)].map((found) => found[1] ?? '');
      const missing = links.filter((link) => {
        if (link.startsWith('https://')) return false;
        if (link.startsWith('#')) return !anchors.includes(link.slice(1));
        return !existsSync(join(ROOT, dirname(file), link));
      });
      expect(missing).toEqual([]);
    },
  );

  it('CHANGELOG.md tells of the version of the package', () => {
    const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
    expect(VERSION).toBe(version);
    expect(readFileSync(join(ROOT, 'CHANGELOG.md'), 'utf8')).toContain(`\n## ${version} `);
  });

  it('SPEC.md and the code agree on the reasons of a replay and the kinds of errors that they name', () => {
    const spec = readFileSync(join(ROOT, 'protocol/SPEC.md'), 'utf8');
    const reasons = [...new Metrics().replays.values()].map(({ labels }) => labels[1] ?? '').filter(Boolean);
    for (const reason of new Set(reasons)) {
      if (reason !== 'no_cursor') expect(spec).toContain(`\`${reason}\``);
    }
  });
});
