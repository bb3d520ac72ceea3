import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { ANSWER } from '../../examples/answer.ts';

const DEMO = join(import.meta.dirname, '../../dist/examples/resume-after-drop.js');

it('the demonstration of the README shows that nothing is missing or twice', async () => {
  const { code, stdout, stderr } = await new Promise<{ code: number; stdout: string; stderr: string }>((resolve) => {
    execFile(process.execPath, [DEMO], (error, stdout, stderr) => {
      resolve({ code: error ? Number(error.code) : 0, stdout, stderr });
    });
  });
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(stdout).toContain('Nothing is missing and nothing came twice.');
  // What is shown is what was said: the two colored parts, without the notes between them.
  const shown = stdout
    .slice(0, stdout.indexOf('--- before the cut'))
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('---'));
  expect(shown.join('')).toBe(ANSWER);
});
