/** The Dockerfile's promises, as far as they can be checked without a container engine. */
import { execFile } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '..');

interface Instruction {
  readonly name: string;
  readonly rest: string;
}

function instructions(): Instruction[] {
  const text = readFileSync(join(ROOT, 'Dockerfile'), 'utf8')
    .replace(/^#.*\n/gm, '')
    .replace(/\\\n\s*/g, '');
  return text
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map((line) => ({ name: line.split(' ', 1)[0] ?? '', rest: line.slice(line.indexOf(' ') + 1) }));
}

const all = instructions();
const lastFrom = all.findLastIndex(({ name }) => name === 'FROM');
const final = all.slice(lastFrom);
const restOf = (name: string): string => final.findLast((instruction) => instruction.name === name)?.rest ?? '';

function healthCheck(port: number): Promise<number> {
  const command = JSON.parse(restOf('HEALTHCHECK').replace(/^.*?CMD /, '')) as string[];
  expect(command[0]).toBe('node');
  const args = command.slice(1).map((arg) => arg.replace('7777', String(port)));
  return new Promise((resolve) => {
    execFile(process.execPath, args, (error) => resolve(error ? Number(error.code) : 0));
  });
}

describe('Dockerfile', () => {
  it('builds in a stage of its own, from the lock file, and ships no development dependency', () => {
    const build = all.slice(0, lastFrom);
    expect(build[0]).toMatchObject({ name: 'FROM', rest: expect.stringMatching(/ AS build$/) as string });
    expect(build.some(({ rest }) => rest === 'npm ci')).toBe(true);
    expect(build.some(({ rest }) => rest.includes('npm prune --omit=dev'))).toBe(true);
  });

  it('names versions of its base images that the package supports', () => {
    const bases = all.filter(({ name }) => name === 'FROM').map(({ rest }) => rest.split(' ')[0]);
    for (const base of bases) expect(base).toMatch(/^node:(2[0-9]|[3-9][0-9])-[a-z-]+$/);
  });

  it('runs as a user that is not root, and owns its volume', () => {
    expect(restOf('USER')).toBe('node');
    const store = /ACP_SIDECAR_STORE=(\S+)/.exec(restOf('ENV'))?.[1] ?? '';
    expect(restOf('VOLUME')).toBe(store);
    expect(final.some(({ rest }) => rest === `install -d -o node -g node -m 0700 ${store}`)).toBe(true);
  });

  it('starts node itself, so that signals reach it', () => {
    const entry = JSON.parse(restOf('ENTRYPOINT')) as string[];
    expect(entry[0]).toBe('node');
    expect(entry.at(-1)).toBe('/opt/acp-sidecar/bin/acp-sidecar.cjs');
    expect(restOf('STOPSIGNAL')).toBe('SIGTERM');
  });

  it('copies what there is', () => {
    const first =
      all
        .find(({ name, rest }) => name === 'COPY' && rest.endsWith(' ./'))
        ?.rest.split(' ')
        .slice(0, -1) ?? [];
    expect(first).toContain('package-lock.json');
    expect(first.filter((file) => !existsSync(join(ROOT, file)))).toEqual([]);
    const ignored = readFileSync(join(ROOT, '.dockerignore'), 'utf8').split('\n');
    expect(ignored).toEqual(expect.arrayContaining(['node_modules', 'dist', '.git']));
  });

  it('has a health check that tells a live server from a dead one', async () => {
    let status = 200;
    const server = createServer((request, response) => {
      response.writeHead(request.url === '/healthz' ? status : 404).end();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    expect(await healthCheck(port)).toBe(0);
    status = 503;
    expect(await healthCheck(port)).toBe(1);
    await new Promise((resolve) => server.close(resolve));
    expect(await healthCheck(port)).toBe(1);
  });
});
