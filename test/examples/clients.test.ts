/** The examples that show clients, as their readers run them. */
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { OPTION_FIELDS, OPTIONS } from '../../proxy/options.ts';

const ROOT = join(import.meta.dirname, '../..');

async function run(name: string, input = ''): Promise<{ code: number | null; out: string }> {
  const child = spawn(process.execPath, [join(ROOT, 'dist/examples', `${name}.js`)]);
  let out = '';
  child.stdout.on('data', (bytes: Buffer) => (out += bytes.toString()));
  child.stderr.on('data', (bytes: Buffer) => (out += bytes.toString()));
  child.stdin.write(input);
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
  return { code, out };
}

describe('the examples', () => {
  it('two editors on one session', async () => {
    const { code, out } = await run('two-editors');
    expect(out).toContain('answered by the second editor');
    expect(code, out).toBe(0);
  });

  it('a client of the SDK survives drops by one changed line', async () => {
    const { code, out } = await run('sdk-client-with-drops');
    expect(out).toContain('--- drop 2');
    expect(code, out).toBe(0);
  });

  it('approvals are answered from a terminal', async () => {
    const { code, out } = await run('answer-approvals', 'x\n1\n');
    expect(out).toContain('the turn ended with end_turn, the tool is completed');
    expect(code, out).toBe(0);
  });

  it('the Kubernetes manifest uses options that exist', () => {
    const manifest = readFileSync(join(ROOT, 'examples/kubernetes/sidecar.yaml'), 'utf8');
    const own = manifest.slice(0, manifest.indexOf('- --\n'));
    const used = [...own.matchAll(/- --([a-z-]+)/g)].map((found) => found[1] ?? '');
    const known = OPTION_FIELDS.map((field) => OPTIONS[field].name);
    expect(used.length).toBeGreaterThan(3);
    expect(used.filter((name) => !known.includes(name))).toEqual([]);
  });
});
