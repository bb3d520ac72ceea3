/**
 * `acpx`, an independent ACP client, unchanged: a prompt with a permission, through `acp-sidecar connect` and through a
 * bridge that only copies bytes, beside a client that looks on.
 */
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { beforeAll, describe, expect, it } from 'vitest';
import { at, textAt, updateOf } from '../support/json.ts';
import { fetchPackages } from '../support/fetched-packages.ts';
import type { RawClient } from '../support/raw-client.ts';
import { testScope } from '../support/scope.ts';
import { ROOT } from '../support/scripted-agent.ts';
import { Sidecar, SIDECAR_PROGRAM } from '../support/sidecar.ts';
import { tempDir } from '../support/temp-dir.ts';

const run = promisify(execFile);
const EXAMPLE_AGENT = [process.execPath, join(ROOT, 'dist/examples/agent.js')];
const ACPX = 'acpx@0.19.1';
/** acpx asks for Node 22; the `node` package of npm brings one where the tests run on an older one. */
const NODE = 'node@22.23.3';

let node = process.execPath;
let acpx = '';

beforeAll(async () => {
  const own = Number(process.versions.node.split('.')[0]) >= 22;
  const place = await fetchPackages('acpx', own ? [ACPX] : [ACPX, NODE]);
  acpx = join(place, 'node_modules/acpx/dist/cli.js');
  if (!own) node = join(place, 'node_modules/node/bin/node');
}, 300_000);

const BRIDGE = `
const socket = require('node:net').connect(process.argv[2]);
process.stdin.pipe(socket);
socket.pipe(process.stdout);
`;

/** The command that acpx runs as its agent. */
const WAYS: Record<string, (socketPath: string, dir: string) => string> = {
  connect: (socketPath) => `${process.execPath} ${SIDECAR_PROGRAM} connect ${socketPath}`,
  'a byte bridge': (socketPath, dir) => {
    const file = join(dir, 'bridge.cjs');
    writeFileSync(file, BRIDGE);
    return `${process.execPath} ${file} ${socketPath}`;
  },
};

interface Ran {
  readonly messages: Record<string, unknown>[];
  readonly outcome: string;
}

async function prompt(agent: string, dir: string, policy: string): Promise<Ran> {
  const args = ['--agent', agent, policy, '--format', 'json', '--cwd', dir, 'exec', 'use the tool'];
  const ended = await run(node, [acpx, ...args], { env: { ...process.env, HOME: dir }, timeout: 60_000 }).catch(
    (error: { stdout?: string; message: string }) => ({ stdout: error.stdout ?? '', stderr: error.message }),
  );
  const messages = ended.stdout.split('\n').flatMap((line) => {
    return line.startsWith('{') ? [JSON.parse(line) as Record<string, unknown>] : [];
  });
  const stopped = messages.find((message) => at(message, 'result', 'stopReason') !== undefined);
  if (!stopped) throw new Error(`acpx got no stop reason: ${ended.stderr}\n${ended.stdout.slice(-2000)}`);
  return { messages, outcome: textAt(stopped, 'result', 'stopReason') };
}

/** The newest session, as a client that looks on is shown it. */
async function lookAt(client: RawClient): Promise<{ sessionId: string; statuses: unknown[] }> {
  const sessionId = textAt(await client.request('session/list'), 'sessions', 0, 'sessionId');
  await client.load(sessionId);
  const statuses = client.updates(sessionId).flatMap(({ message }) => updateOf(message)?.['status'] ?? []);
  return { sessionId, statuses };
}

describe.each(Object.entries(WAYS))('acpx through %s', (_name, way) => {
  it('prompts, is asked for a permission, and its answer decides', { timeout: 120_000 }, async () => {
    const scope = testScope();
    const dir = tempDir(scope);
    const sidecar = await Sidecar.start(scope, { agent: EXAMPLE_AGENT, env: { EXAMPLE_AGENT_WORD_MS: '1' } });
    const agent = way(sidecar.socketPath, dir);
    for (const [policy, optionKind] of [
      ['--approve-all', 'allow_once'],
      ['--deny-all', 'reject_once'],
    ] as const) {
      const { messages, outcome } = await prompt(agent, dir, policy);
      expect(outcome).toBe('end_turn');
      const asked = messages.find(({ method }) => method === 'session/request_permission');
      expect(asked, 'acpx was asked').toBeDefined();
      const onlooker = await sidecar.unix();
      await onlooker.initialize({ sidecar: { role: 'observer' } });
      const { sessionId, statuses } = await lookAt(onlooker);
      expect(textAt(asked, 'params', 'sessionId')).toBe(sessionId);
      const told = onlooker.received.findLast(
        ({ message }) => message.method === '_sidecar/approval' && at(message, 'params', 'state') === 'resolved',
      );
      const options = at(asked, 'params', 'options') as { optionId: string; kind: string }[];
      const chosen = options.find(({ optionId }) => optionId === at(told?.message, 'params', 'outcome', 'optionId'));
      expect(chosen?.kind).toBe(optionKind);
      expect(statuses.at(-1)).toBe(policy === '--approve-all' ? 'completed' : 'failed');
    }
  });
});
