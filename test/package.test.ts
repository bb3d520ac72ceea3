/**
 * What `npm pack` makes: packed from a copy of the tree, installed into an empty folder as a user does, with types checked
 * as strictly as a user may.
 */
import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, relative } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '..');
const run = promisify(execFile);
const BASE = join(tmpdir(), `acp-sidecar-pack-${process.pid}`);
const COPY = join(BASE, 'copy');
const USER = join(BASE, 'user');

interface Packed {
  readonly filename: string;
  readonly unpackedSize: number;
  readonly files: readonly { readonly path: string }[];
}

let packed: Packed;
let files: string[];

/** The tree as it is, without what is built, installed or tested. */
function copyTree(): void {
  const left = new Set(['node_modules', 'dist', '.git']);
  cpSync(ROOT, COPY, { recursive: true, filter: (path) => !left.has(relative(ROOT, path).split('/')[0] ?? '') });
  symlinkSync(join(ROOT, 'node_modules'), join(COPY, 'node_modules'));
}

/** Installs the package without a registry: its dependencies are those that are installed here. */
async function install(): Promise<void> {
  const module = join(USER, 'node_modules/acp-sidecar');
  mkdirSync(module, { recursive: true });
  await run('tar', ['xzf', join(COPY, packed.filename), '--strip-components=1', '-C', module]);
  const { dependencies } = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')).packages[''] as {
    dependencies: Record<string, string>;
  };
  const wanted = [...Object.keys(dependencies), '@types/node'];
  for (const name of await withTheirOwn(wanted)) {
    mkdirSync(join(USER, 'node_modules', name, '..'), { recursive: true });
    symlinkSync(join(ROOT, 'node_modules', name), join(USER, 'node_modules', name));
  }
  writeFileSync(join(USER, 'package.json'), JSON.stringify({ name: 'user', type: 'module', private: true }));
}

/** Names with all that they depend on, as the lock file tells. */
async function withTheirOwn(names: readonly string[]): Promise<Set<string>> {
  const { packages } = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { dependencies?: Record<string, string>; optionalDependencies?: Record<string, string> }>;
  };
  const seen = new Set<string>();
  const visit = (name: string): void => {
    const entry = packages[`node_modules/${name}`];
    if (seen.has(name) || !entry) return;
    seen.add(name);
    for (const next of Object.keys({ ...entry.dependencies, ...entry.optionalDependencies })) visit(next);
  };
  for (const name of names) visit(name);
  return seen;
}

beforeAll(async () => {
  copyTree();
  const { stdout } = await run('npm', ['pack', '--json'], { cwd: COPY, maxBuffer: 16 * 1024 * 1024 });
  const list = JSON.parse(stdout.slice(stdout.lastIndexOf('\n[') + 1)) as Packed[];
  packed = list[0] as Packed;
  files = packed.files.map(({ path }) => path);
  await install();
}, 180_000);

afterAll(() => rmSync(BASE, { recursive: true, force: true }));

describe('npm pack', () => {
  it('holds the program, the entry points with their types, and what tells about them', () => {
    const needed = [
      'package.json',
      'README.md',
      'CHANGELOG.md',
      'SECURITY.md',
      'LICENSE',
      'bin/acp-sidecar.cjs',
      'dist/bin/acp-sidecar.js',
      'dist/protocol/published.js',
      'dist/protocol/published.d.ts',
      'dist/storage/published.js',
      'dist/storage/published.d.ts',
      'dist/proxy/client/node.js',
      'dist/proxy/client/node.d.ts',
      'dist/proxy/client/browser.js',
      'dist/proxy/client/browser.d.ts',
    ];
    expect(needed.filter((file) => !files.includes(file))).toEqual([]);
  });

  it('holds nothing else', () => {
    const allowed = [
      /^(package\.json|README\.md|CHANGELOG\.md|SECURITY\.md|LICENSE)$/,
      /^bin\/acp-sidecar\.cjs$/,
      /^dist\/bin\/[\w.-]+\.js$/,
      /^dist\/(protocol|storage|proxy\/client)\/[\w/.-]+\.(js|d\.ts)$/,
    ];
    expect(files.filter((file) => !allowed.some((pattern) => pattern.test(file)))).toEqual([]);
    expect(packed.unpackedSize).toBeLessThan(4 * 1024 * 1024);
  });

  it('has no file of the bundle that nothing loads', () => {
    const bundle = files.filter((file) => file.startsWith('dist/bin/'));
    const text = bundle.map((file) => readFileSync(join(USER, 'node_modules/acp-sidecar', file), 'utf8')).join('\n');
    const entry = 'acp-sidecar.js';
    expect(
      bundle.map((file) => basename(file)).filter((name) => name !== entry && !text.includes(`./${name}`)),
    ).toEqual([]);
  });

  it('installed, its program runs', async () => {
    const bin = join(USER, 'node_modules/acp-sidecar/bin/acp-sidecar.cjs');
    const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
    expect((await run(bin, ['--version'], { cwd: USER })).stdout.trim()).toBe(version);
    const help = await run(bin, ['serve', '--help'], { cwd: USER });
    expect(help.stdout).toContain('--listen');
    const none = run(bin, ['serve', '--store', join(BASE, 'store'), '--', 'no-such-agent'], { cwd: USER });
    await expect(none).rejects.toMatchObject({ code: 5 });
  });

  it('installed, each entry point is imported by its name, and nothing else is', async () => {
    const script = `
      const client = await import('acp-sidecar/client');
      const protocol = await import('acp-sidecar/protocol');
      const storage = await import('acp-sidecar/storage');
      const inside = await import('acp-sidecar/dist/proxy/client/node.js').catch((error) => error.code);
      console.log(JSON.stringify({
        client: typeof client.resumableStream, errors: protocol.ERRORS.observer.code,
        storage: typeof storage.openLmdbEventLogReadOnly, inside,
      }));`;
    const { stdout } = await run(process.execPath, ['--input-type=module', '-e', script], { cwd: USER });
    expect(JSON.parse(stdout)).toEqual({
      client: 'function',
      errors: -32010,
      storage: 'function',
      inside: 'ERR_PACKAGE_PATH_NOT_EXPORTED',
    });
  });

  it.each([
    ['Node', ['--module', 'nodenext', '--types', 'node']],
    [
      'a bundler for browsers',
      ['--module', 'esnext', '--moduleResolution', 'bundler', '--customConditions', 'browser'],
    ],
  ])('installed, its types are complete for %s', async (kind, how) => {
    const node = kind === 'Node';
    const file = join(USER, node ? 'node.ts' : 'browser.ts');
    const storage = `import { openLmdbEventLogReadOnly, decodeRecord } from 'acp-sidecar/storage';
      export const log: Promise<{ bytes(): number }> = openLmdbEventLogReadOnly('/s');
      export const decoded: typeof decodeRecord = decodeRecord;`;
    writeFileSync(
      file,
      `import { resumableStream } from 'acp-sidecar/client';
      import { ERRORS, type ErrorKind } from 'acp-sidecar/protocol';
      ${node ? storage : ''}
      const stream = resumableStream({ url: 'ws://127.0.0.1:1/acp', onState: (state) => void state });
      export const kind: ErrorKind = 'observer';
      export const code: number = ERRORS[kind].code;
      export const close: () => void = () => stream.close();
      // @ts-expect-error the url is needed
      resumableStream({});`,
    );
    const args = ['--noEmit', '--strict', '--target', 'es2023', '--lib', node ? 'es2023' : 'esnext,dom', ...how, file];
    const tsc = run(join(ROOT, 'node_modules/.bin/tsc'), args, { cwd: USER });
    await expect(tsc.catch((error: { stdout: string }) => error.stdout)).resolves.toMatchObject({ stdout: '' });
  });
});
