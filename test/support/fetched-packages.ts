import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/**
 * Installs packages of the npm registry that are too large or too foreign for our own dependencies, once a machine; returns
 * the directory that has their `node_modules`. @param packages with their exact versions
 */
export async function fetchPackages(name: string, packages: readonly string[]): Promise<string> {
  const cache = join(tmpdir(), `acp-sidecar-tests-${process.getuid?.() ?? 0}`);
  const place = join(cache, `${name}-${packages.join('+').replaceAll(/[^\w.+-]/g, '_')}`);
  if (existsSync(place)) return place;
  mkdirSync(cache, { recursive: true, mode: 0o700 });
  const making = mkdtempSync(join(cache, 'making-'));
  writeFileSync(join(making, 'package.json'), '{"private":true}');
  const flags = ['--no-audit', '--no-fund', '--no-save', '--loglevel', 'error'];
  await run('npm', ['install', ...flags, ...packages], { cwd: making, timeout: 240_000 });
  try {
    renameSync(making, place);
  } catch (error) {
    rmSync(making, { recursive: true, force: true });
    // Another run was faster.
    if (!existsSync(place)) throw error;
  }
  return place;
}
