/** The image's promises without a container engine: its file is read, and its scripts are run as they are. */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { chownSync, cpSync, existsSync, readFileSync, rmSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { type AddressInfo, createServer as createNetServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { waitFor, within } from './support/wait-for.ts';

const run = promisify(execFile);
const ROOT = join(import.meta.dirname, '..');
const HEALTH = join(ROOT, 'container/health.cjs');

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
const build = all.slice(0, lastFrom);
const final = all.slice(lastFrom);
const restOf = (name: string): string => final.findLast((instruction) => instruction.name === name)?.rest ?? '';
const env = Object.fromEntries([...restOf('ENV').matchAll(/(\w+)=(\S+)/g)].map((found) => [found[1], found[2]]));

describe('Dockerfile', () => {
  it('has only instructions that exist, in an order that makes sense', () => {
    const known = 'FROM RUN COPY ENV WORKDIR USER VOLUME EXPOSE STOPSIGNAL HEALTHCHECK ENTRYPOINT CMD'.split(' ');
    expect(all.filter(({ name }) => !known.includes(name))).toEqual([]);
    expect(all[0]?.name).toBe('FROM');
    const at = (name: string): number => final.findIndex((instruction) => instruction.name === name);
    for (const name of ['USER', 'VOLUME', 'EXPOSE', 'STOPSIGNAL', 'HEALTHCHECK', 'ENTRYPOINT', 'CMD']) {
      expect(final.filter((instruction) => instruction.name === name)).toHaveLength(1);
    }
    // A change of a volume's directory after VOLUME is lost; what needs root comes before USER.
    for (const [index, { name }] of final.entries()) {
      if (name === 'RUN' || name === 'COPY') expect(index).toBeLessThan(Math.min(at('USER'), at('VOLUME')));
    }
  });

  it('pins the versions of its bases to what the package supports, and nothing is fetched by address', () => {
    for (const { rest } of all.filter(({ name }) => name === 'FROM')) {
      expect(rest).toMatch(/^node:(2[0-9]|[3-9][0-9])-[a-z]+-slim( AS build)?$/);
    }
    expect(all.filter(({ rest }) => /https?:|curl|wget|:latest|apt-get/.test(rest))).toEqual([]);
  });

  it('builds in a stage of its own by the scripts that are tested below', () => {
    expect(build.find(({ name }) => name === 'RUN')?.rest).toBe('container/build.sh && container/install.sh . /image');
    expect(final.find(({ name }) => name === 'COPY')?.rest).toBe('--from=build /image/ /');
    const ignored = readFileSync(join(ROOT, '.dockerignore'), 'utf8').split('\n');
    expect(ignored).toEqual(expect.arrayContaining(['node_modules', 'dist', '.git']));
  });

  it('runs as a user that is not root, who owns the store and the place of agents and nothing else', () => {
    expect(restOf('USER')).toBe('node');
    expect(restOf('VOLUME')).toBe(env['ACP_SIDECAR_STORE']);
    expect(restOf('RUN')).toBe(`chown node:node ${env['NPM_CONFIG_PREFIX']} ${env['ACP_SIDECAR_STORE']}`);
  });

  it('lets npm install an agent in one line: its programs are on the path', () => {
    expect(env['PATH']?.split(':')[0]).toBe(`${env['NPM_CONFIG_PREFIX']}/bin`);
  });

  it('starts node itself, so that signals reach it, and stops by SIGTERM', () => {
    const entry = JSON.parse(restOf('ENTRYPOINT')) as string[];
    expect(entry[0]).toBe('node');
    expect(entry.at(-1)).toBe('/opt/acp-sidecar/bin/acp-sidecar.cjs');
    expect(restOf('STOPSIGNAL')).toBe('SIGTERM');
  });

  it('checks its health by the script that is tested below, on the port that it exposes', () => {
    expect(restOf('HEALTHCHECK')).toMatch(/ CMD \["node", "\/opt\/acp-sidecar\/health\.cjs"\]$/);
    expect(env['ACP_SIDECAR_LISTEN']).toBe(`127.0.0.1:${restOf('EXPOSE')}`);
  });
});

async function health(variables: Readonly<Record<string, string>>, path?: string): Promise<number> {
  const child = execFile(process.execPath, [HEALTH, ...(path === undefined ? [] : [path])], {
    env: { PATH: process.env['PATH'], ...variables },
  });
  return new Promise((resolve) => child.on('close', (code) => resolve(code ?? -1)));
}

describe('the health check', () => {
  it('tells a live server from one that answers badly, and from none', async () => {
    let status = 200;
    const server = createServer((request, response) => {
      response.writeHead(request.url === '/healthz' ? status : 404).end();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const listen = {
      ACP_SIDECAR_LISTEN: `unix:/run/a.sock,ws://127.0.0.1:${(server.address() as AddressInfo).port}/acp`,
    };
    expect(await health(listen)).toBe(0);
    expect(await health(listen, '/readyz')).toBe(1);
    status = 503;
    expect(await health(listen)).toBe(1);
    await new Promise((resolve) => server.close(resolve));
    expect(await health(listen)).toBe(1);
  });

  it('does not wait for ever for a server that hangs', async () => {
    const server = createNetServer(() => undefined);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    expect(await health({ ACP_SIDECAR_LISTEN: `0.0.0.0:${(server.address() as AddressInfo).port}` })).toBe(1);
    server.close();
  });
});

const isRoot = process.getuid?.() === 0;
const BASE = join(tmpdir(), `acp-sidecar-image-${process.pid}`);
const IMAGE = join(BASE, 'image');
const USER_ID = 1000;

/**
 * Runs a command as the image would: everything read-only but the store and /tmp, as a user that is not root. The layout
 * is bound to the places that it has in the image.
 */
function inImage(command: readonly string[]): ChildProcess {
  const script = `
    set -e
    mount --make-rprivate /
    mkdir -p ${BASE}/store && chown ${USER_ID}:${USER_ID} ${BASE}/store && chmod 0700 ${BASE}/store
    mount -t tmpfs none /opt
    mkdir -p /opt/acp-sidecar && mount --bind ${IMAGE}/opt/acp-sidecar /opt/acp-sidecar
    mount -t tmpfs -o mode=0755 none /var/lib
    mkdir -p /var/lib/acp-sidecar && mount --bind ${BASE}/store /var/lib/acp-sidecar
    mount -o remount,bind,ro /opt/acp-sidecar
    mount -o remount,ro /opt
    mount -o remount,bind,ro / 2>/dev/null || mount -o remount,ro,bind /
    exec setpriv --reuid=${USER_ID} --regid=${USER_ID} --clear-groups --no-new-privs "$@"`;
  return spawn('unshare', ['--mount', 'sh', '-c', script, 'sh', ...command], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      PATH: process.env['PATH'],
      HOME: '/home/node',
      NODE_ENV: 'production',
      ACP_SIDECAR_STORE: '/var/lib/acp-sidecar',
      ACP_SIDECAR_LISTEN: '127.0.0.1:0',
    },
  });
}

async function canUnshare(): Promise<boolean> {
  return (
    isRoot &&
    (await run('unshare', ['--mount', 'mount', '-t', 'tmpfs', 'none', '/mnt']).then(
      () => true,
      () => false,
    ))
  );
}

describe.runIf(process.platform === 'linux')('the image', () => {
  beforeAll(async () => {
    const left = new Set(['node_modules', 'dist', '.git', 'test']);
    const copy = join(BASE, 'src');
    cpSync(ROOT, copy, { recursive: true, filter: (path) => !left.has(relative(ROOT, path).split('/')[0] ?? '') });
    await run(join(copy, 'container/build.sh'), { maxBuffer: 16 * 1024 * 1024 });
    await run(join(copy, 'container/install.sh'), ['.', IMAGE], { cwd: copy });
  }, 240_000);

  afterAll(() => rmSync(BASE, { recursive: true, force: true }));

  it('has the program, a private store, and no development tools', async () => {
    expect(statSync(join(IMAGE, 'var/lib/acp-sidecar')).mode & 0o777).toBe(0o700);
    expect(existsSync(join(IMAGE, 'opt/acp-sidecar/dist/bin/acp-sidecar.js'))).toBe(true);
    expect(existsSync(join(IMAGE, 'opt/acp-sidecar/node_modules/lmdb'))).toBe(true);
    for (const tool of ['typescript', 'vitest', 'esbuild', '@biomejs']) {
      expect(existsSync(join(IMAGE, 'opt/acp-sidecar/node_modules', tool))).toBe(false);
    }
    const { stdout } = await run('du', ['-sm', IMAGE]);
    expect(Number.parseInt(stdout, 10)).toBeLessThan(80);
  });

  it('serves as a user with nothing writable but its store, is healthy, and drains on SIGTERM', async (context) => {
    if (!(await canUnshare())) return context.skip('needs root and mount namespaces');
    chownSync(BASE, USER_ID, USER_ID);
    const agent = join(ROOT, 'dist/examples/agent.js');
    const entry = JSON.parse(restOf('ENTRYPOINT')) as string[];
    const child = inImage([...entry, 'serve', '--', process.execPath, agent]);
    const output = { out: '', err: '' };
    child.stdout?.setEncoding('utf8').on('data', (text: string) => (output.out += text));
    child.stderr?.setEncoding('utf8').on('data', (text: string) => (output.err += text));
    const exit = new Promise<number | null>((resolve) => child.on('close', resolve));
    await waitFor(
      () => `the ready line; stderr:\n${output.err}`,
      () => output.out.includes('\n'),
      { timeoutMs: 20_000 },
    );
    const ready = JSON.parse(output.out) as { endpoints: string[]; store: string; pid: number };
    expect(ready.store).toBe('/var/lib/acp-sidecar');
    const listen = ready.endpoints[0] ?? '';
    expect(await health({ ACP_SIDECAR_LISTEN: listen })).toBe(0);
    expect(await health({ ACP_SIDECAR_LISTEN: listen }, '/readyz')).toBe(0);
    expect(readFileSync(`/proc/${ready.pid}/status`, 'utf8')).toMatch(/^Uid:\t1000\t1000/m);
    const write = inImage(['sh', '-c', 'touch /var/lib/acp-sidecar/here /tmp/there']);
    let refused = '';
    write.stderr?.setEncoding('utf8').on('data', (text: string) => (refused += text));
    expect(await new Promise((resolve) => write.on('close', resolve))).not.toBe(0);
    expect(refused).toMatch(/^touch: [^\n]*\/tmp\/there[^\n]*Read-only file system\n$/);
    process.kill(ready.pid, 'SIGTERM');
    expect(await within(() => `the end; stderr:\n${output.err}`, exit, 20_000)).toBe(0);
    expect(existsSync(join(BASE, 'store/data.mdb'))).toBe(true);
  });
});
