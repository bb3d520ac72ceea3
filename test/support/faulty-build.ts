/** The sidecar with one fault put in, to see that the tests which should find it do. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { build } from 'esbuild';
import { ROOT } from './scripted-agent.ts';

export interface Fault {
  readonly name: string;
  /** The source file, from the root. */
  readonly file: string;
  /** Text that must stand in it once, and what stands there instead. */
  readonly replace: readonly (readonly [from: string, to: string])[];
}

/** Builds it and gives the program's path. @throws when the source no longer has the text. */
export async function buildWithFault({ name, file, replace }: Fault): Promise<string> {
  const outdir = join(ROOT, 'dist/faulty', name.replaceAll(/\W+/g, '-'));
  await build({
    entryPoints: { 'acp-sidecar': join(ROOT, 'proxy/cli/main.ts') },
    outdir,
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    target: 'node20',
    external: ['lmdb'],
    logLevel: 'silent',
    banner: { js: "import{createRequire as __cr}from'node:module';const require=__cr(import.meta.url);" },
    plugins: [
      {
        name: 'fault',
        setup: (builder) => {
          builder.onLoad({ filter: /\.ts$/ }, ({ path }) => {
            if (path !== join(ROOT, file)) return undefined;
            let contents = readFileSync(path, 'utf8');
            for (const [from, to] of replace) {
              if (contents.split(from).length !== 2) throw new Error(`${file} does not have once: ${from}`);
              contents = contents.replace(from, () => to);
            }
            return { contents, loader: 'ts' };
          });
        },
      },
    ],
  });
  return join(outdir, 'acp-sidecar.js');
}
