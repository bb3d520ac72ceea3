import { readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readTrace } from '../../../proxy/trace/read-trace.ts';
import { TraceFile } from '../../../proxy/trace/trace-file.ts';
import { testScope } from '../../support/scope.ts';
import { tempDir } from '../../support/temp-dir.ts';

const header = (part: number): string => JSON.stringify({ trace: 1, version: '0', time: 0, pid: 1, part });
const record = (n: number): string => JSON.stringify({ time: n, peer: 'agent', id: 1, to: 'sidecar', message: { n } });

function fileOf(maxBytes: number): { path: string; file: TraceFile; failures: string[] } {
  const path = join(tempDir(testScope()), 'trace');
  const failures: string[] = [];
  return { path, failures, file: new TraceFile({ path, maxBytes, header, failed: (why) => failures.push(why) }) };
}

function numbersIn(path: string): number[] {
  return readTrace(path).map(({ time }) => time);
}

describe('a trace file', () => {
  it('is whole lines in order, under its limit, with the part before it beside it', () => {
    const { path, file } = fileOf(2000);
    for (let n = 1; n <= 100; n++) {
      file.line(record(n));
      if (n % 7 === 0) file.flush();
    }
    file.close();
    for (const part of [path, `${path}.1`]) {
      expect(statSync(part).size).toBeLessThanOrEqual(2000);
      expect(readFileSync(part, 'utf8').endsWith('}\n')).toBe(true);
    }
    const numbers = numbersIn(path);
    // Two files of it, up to the last line, without a hole.
    expect(numbers.at(-1)).toBe(100);
    expect(numbers.length).toBeGreaterThan(20);
    expect(numbers).toEqual(numbers.map((_, at) => 101 - numbers.length + at));
  });

  it('takes a line that alone is over the limit', () => {
    const { path, file } = fileOf(500);
    file.line(record(1));
    file.line(JSON.stringify({ time: 2, peer: 'agent', id: 1, raw: 'x'.repeat(900) }));
    file.line(record(3));
    file.close();
    expect(numbersIn(path)).toEqual([2, 3]);
  });

  it('writes by itself, without being asked', async () => {
    const { path, file } = fileOf(100_000);
    file.line(record(1));
    await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
    expect(numbersIn(path)).toEqual([1]);
  });

  it('ends, and says why, when it cannot be written any more', () => {
    const { path, file, failures } = fileOf(300);
    rmSync(join(path, '..'), { recursive: true });
    for (let n = 1; n <= 20; n++) file.line(record(n));
    file.flush();
    file.line(record(21));
    file.close();
    expect(failures).toEqual([expect.stringContaining('ENOENT')]);
  });

  it('a part that belongs to another trace is not read with it, nor is a line that was cut off', () => {
    const path = join(tempDir(testScope()), 'trace');
    writeFileSync(path, `${header(3)}\n${record(5)}\n${record(6).slice(0, 20)}`);
    writeFileSync(`${path}.1`, `${header(1)}\n${record(1)}\n`);
    expect(numbersIn(path)).toEqual([5]);
    writeFileSync(`${path}.1`, `${header(2)}\n${record(4)}\n`);
    expect(numbersIn(path)).toEqual([4, 5]);
  });
});
