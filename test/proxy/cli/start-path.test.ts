import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { build } from 'esbuild';
import { describe, expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '../../..');

/** Every source file and package that is loaded without anybody asking for it by `import()`. */
async function staticInputs(entry: string): Promise<string[]> {
  const { metafile } = await build({
    entryPoints: [join(ROOT, entry)],
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    outdir: join(ROOT, 'dist/never-written'),
    write: false,
    metafile: true,
    external: ['lmdb'],
    logLevel: 'silent',
    absWorkingDir: ROOT,
  });
  const seen = new Set<string>();
  const visit = (file: string): void => {
    if (seen.has(file)) return;
    seen.add(file);
    for (const { path, kind, external } of metafile.inputs[file]?.imports ?? []) {
      if (kind !== 'dynamic-import' && !external) visit(path);
    }
  };
  visit(entry);
  return [...seen];
}

const packagesOf = (inputs: readonly string[]): string[] => [
  ...new Set(inputs.map((input) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(input)?.[1] ?? '').filter(Boolean)),
];

describe('the start path of serve', () => {
  it('loads neither the ACP SDK nor zod', async () => {
    const inputs = await Promise.all(['proxy/cli/main.ts', 'proxy/cli/serve.ts', 'proxy/server.ts'].map(staticInputs));
    const packages = packagesOf(inputs.flat());
    expect(packages).toContain('commander');
    expect(packages).not.toContain('zod');
    expect(packages).not.toContain('@agentclientprotocol/sdk');
  });

  it('the test above would see it: the config file is read with zod', async () => {
    expect(packagesOf(await staticInputs('proxy/config-file.ts'))).toContain('zod');
  });

  it('run and connect load no server and no store', async () => {
    const run = await staticInputs('proxy/cli/run.ts');
    expect(packagesOf(run)).toEqual([]);
    expect(run.filter((path) => /server\.ts$|lmdb|pino/.test(path))).toEqual([]);
    expect(packagesOf(await staticInputs('proxy/cli/connect.ts'))).toEqual(['ws']);
  });

  it('the command line alone loads only commander', async () => {
    expect(packagesOf(await staticInputs('proxy/cli/main.ts'))).toEqual(['commander']);
  });
});

describe.runIf(process.platform === 'linux')('the launcher', () => {
  it('starts a thread pool of 8 and leaves the environment as it was', async () => {
    const launcher = readFileSync(join(ROOT, 'bin/acp-sidecar.cjs'), 'utf8');
    const before = launcher.slice(launcher.indexOf('const given'), launcher.indexOf('import('));
    const { UV_THREADPOOL_SIZE: _, ...env } = process.env;
    const script = `${before}
      setTimeout(() => {
        const threads = require('node:fs').readdirSync('/proc/self/task').length;
        console.log(threads, process.env.UV_THREADPOOL_SIZE);
      }, 100);`;
    const bare = `require('node:fs').stat(__filename, () => {});
      setTimeout(() => console.log(require('node:fs').readdirSync('/proc/self/task').length), 100);`;
    const node = async (source: string): Promise<string> =>
      (await promisify(execFile)(process.execPath, ['-e', source], { env })).stdout.trim();
    const [ours, plain] = await Promise.all([node(script), node(bare)]);
    expect(ours).toBe(`${Number(plain) + 4} undefined`);
  });

  it('gives node a small young generation', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'fake-node-'));
    writeFileSync(join(dir, 'node'), '#!/bin/sh\necho "$@"\n', { mode: 0o755 });
    const env = { ...process.env, PATH: `${dir}:${process.env['PATH']}` };
    const { stdout } = await promisify(execFile)(join(ROOT, 'bin/acp-sidecar.cjs'), ['serve', '--', 'a b'], { env });
    rmSync(dir, { recursive: true });
    expect(stdout).toMatch(/^--max-semi-space-size=4 \S*acp-sidecar\.cjs serve -- a b\n$/);
  });
});
