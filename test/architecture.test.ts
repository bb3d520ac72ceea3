/** The rules of the source tree that the compiler does not hold. */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { describe, expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '..');
const FOLDERS = ['protocol', 'storage', 'proxy', 'examples', 'test'] as const;
type Folder = (typeof FOLDERS)[number];

/** Whom a folder may import. */
const MAY_IMPORT: Readonly<Record<Folder, readonly Folder[]>> = {
  protocol: ['protocol'],
  storage: ['protocol', 'storage'],
  proxy: ['protocol', 'storage', 'proxy'],
  examples: ['examples'],
  test: FOLDERS,
};
const PRODUCT: readonly Folder[] = ['protocol', 'storage', 'proxy'];
/** Sockets and processes belong to the proxy. The store's lock is a bound Unix socket: Node has no flock. */
const PROXY_ONLY = ['node:net', 'node:http', 'node:https', 'node:child_process', 'ws'];
const SOCKET_EXCEPTIONS = ['storage/store-lock.ts', 'storage/page-holds.ts', 'storage/read-view.ts'];
const LMDB_USERS = ['storage/lmdb-databases.ts', 'storage/lmdb-event-log.ts'];
const MAX_LINES = 400;
const VAGUE_NAMES = /(^|-)(utils?|helpers?|common|types|misc|manager)$/;

interface Import {
  readonly target: string;
  /** `import type`: nothing of it is left at run time. */
  readonly typeOnly: boolean;
  readonly lazy: boolean;
}

interface SourceFile {
  readonly path: string;
  readonly folder: Folder;
  readonly lines: number;
  readonly imports: readonly Import[];
}

const STATIC = /^(?:import|export)\s+(type\s+)?(?:[\w*{][^;'"]*?from\s+)?['"]([^'"]+)['"]/gm;
const LAZY = /\bimport\(\s*['"]([^'"]+)['"]/g;

function importsOf(path: string, text: string): Import[] {
  const place = (target: string): string =>
    target.startsWith('.') ? relative(ROOT, join(ROOT, dirname(path), target)) : target;
  return [
    ...[...text.matchAll(STATIC)].map((found) => ({
      target: place(found[2] ?? ''),
      typeOnly: found[1] !== undefined,
      lazy: false,
    })),
    ...[...text.matchAll(LAZY)].map((found) => ({ target: place(found[1] ?? ''), typeOnly: false, lazy: true })),
  ];
}

const FILES: readonly SourceFile[] = FOLDERS.flatMap((folder) =>
  readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => {
      const path = `${folder}/${name}`;
      const text = readFileSync(join(ROOT, path), 'utf8');
      return { path, folder, lines: text.split('\n').length - 1, imports: importsOf(path, text) };
    }),
);
const BY_PATH = new Map(FILES.map((file) => [file.path, file]));

/** `file -> target` of every import that breaks a rule. */
function offences(files: readonly SourceFile[], breaks: (file: SourceFile, found: Import) => boolean): string[] {
  return files.flatMap((file) =>
    file.imports.filter((found) => breaks(file, found)).map(({ target }) => `${file.path} -> ${target}`),
  );
}

function packageOf(target: string): string | undefined {
  // The examples import the package as its users do.
  if (target.startsWith('node:') || target.startsWith('acp-sidecar/') || BY_PATH.has(target)) return undefined;
  return /^(?:@[^/]+\/)?[^/]+/.exec(target)?.[0];
}

/** A cycle of imports through `start`, as a list of files; undefined when there is none. */
function cycleThrough(start: string, edges: (path: string) => string[]): string[] | undefined {
  const from = new Map<string, string>();
  const queue = [start];
  for (let path = queue.shift(); path !== undefined; path = queue.shift()) {
    for (const next of edges(path)) {
      if (next === start) {
        const cycle = [start];
        for (let at: string | undefined = path; at !== undefined && at !== start; at = from.get(at)) cycle.unshift(at);
        return [start, ...cycle];
      }
      if (from.has(next)) continue;
      from.set(next, path);
      queue.push(next);
    }
  }
  return undefined;
}

const product = FILES.filter((file) => PRODUCT.includes(file.folder));

describe('architecture', () => {
  it('sees the tree: every relative import is a file of it', () => {
    expect(FILES.length).toBeGreaterThan(30);
    expect(BY_PATH.get('proxy/cli/main.ts')?.imports.map(({ target }) => target)).toEqual(
      expect.arrayContaining(['commander', 'proxy/cli/serve.ts', 'proxy/cli/exit-code.ts']),
    );
    expect(offences(FILES, (_, { target }) => target.endsWith('.ts') && !BY_PATH.has(target))).toEqual([]);
  });

  it('imports go protocol <- storage <- proxy, and never from test', () => {
    const wrong = offences(FILES, (file, { target }) => {
      const folder = FOLDERS.find((name) => target.startsWith(`${name}/`));
      return BY_PATH.has(target) && folder !== undefined && !MAY_IMPORT[file.folder].includes(folder);
    });
    expect(wrong).toEqual([]);
  });

  it('protocol knows nothing of Node and has no dependency at run time', () => {
    const protocol = FILES.filter((file) => file.folder === 'protocol');
    expect(offences(protocol, (_, { target, typeOnly }) => !BY_PATH.has(target) && !typeOnly)).toEqual([]);
    expect(offences(protocol, (_, { target }) => target.startsWith('node:'))).toEqual([]);
  });

  it('no file imports itself by way of others', () => {
    const edges = (path: string): string[] =>
      (BY_PATH.get(path)?.imports ?? [])
        .filter(({ target, typeOnly }) => BY_PATH.has(target) && !typeOnly)
        .map(({ target }) => target);
    const cycles = FILES.map(({ path }) => cycleThrough(path, edges)).filter((cycle) => cycle !== undefined);
    expect(cycles.map((cycle) => cycle.join(' -> '))).toEqual([]);
  });

  it('only the proxy has sockets and processes', () => {
    const others = product.filter(({ folder, path }) => folder !== 'proxy' && !SOCKET_EXCEPTIONS.includes(path));
    expect(offences(others, (_, { target }) => PROXY_ONLY.includes(target))).toEqual([]);
  });

  it('only the LMDB store knows LMDB', () => {
    const others = product.filter(({ path }) => !LMDB_USERS.includes(path));
    expect(offences(others, (_, { target }) => target === 'lmdb')).toEqual([]);
  });

  it('every package that the product imports is a dependency, and every dependency is used', () => {
    const { dependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
      dependencies: Record<string, string>;
    };
    const shipped = FILES.filter((file) => file.folder !== 'test');
    const used = new Set(shipped.flatMap((file) => file.imports.map(({ target }) => packageOf(target) ?? [])).flat());
    expect([...used].toSorted()).toEqual(Object.keys(dependencies).toSorted());
  });

  it('files are small and named after what they hold', () => {
    expect(product.filter(({ lines }) => lines > MAX_LINES).map(({ path, lines }) => `${path}: ${lines}`)).toEqual([]);
    const names = FILES.map(({ path }) => ({ path, name: (path.split('/').pop() ?? '').replace(/(\.\w+)?\.ts$/, '') }));
    expect(names.filter(({ name }) => VAGUE_NAMES.test(name)).map(({ path }) => path)).toEqual([]);
    expect(names.filter(({ name }) => !/^[a-z0-9]+(-[a-z0-9]+)*$/.test(name)).map(({ path }) => path)).toEqual([]);
  });
});
