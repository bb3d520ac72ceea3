/** Which Node the tests run under is what the package says it supports, and what the run was asked to use. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { SIDECAR_PROGRAM } from './support/sidecar.ts';

const manifest = JSON.parse(readFileSync(join(import.meta.dirname, '../package.json'), 'utf8')) as {
  engines: { node: string };
};

it('runs under a version that the package supports', () => {
  const [, major, minor] = /^>=(\d+)\.(\d+)$/.exec(manifest.engines.node) ?? [];
  const [ours = 0, ourMinor = 0] = process.versions.node.split('.').map(Number);
  expect(ours * 1000 + ourMinor).toBeGreaterThanOrEqual(Number(major) * 1000 + Number(minor));
});

const wanted = process.env['TEST_NODE'];

it.runIf(wanted !== undefined)('runs under the Node that TEST_NODE names, and so does the program', () => {
  expect(process.versions.node).toBe(wanted);
  expect(execFileSync(process.execPath, ['--version'], { encoding: 'utf8' }).trim()).toBe(`v${wanted}`);
  expect(execFileSync(process.execPath, [SIDECAR_PROGRAM, '--version'], { encoding: 'utf8' })).toMatch(
    /^\d+\.\d+\.\d+\n$/,
  );
});
