/**
 * node dist/test/bench/main.js [case...] [--rounds N] [--json]
 *
 * Every round runs every variant of every case once, in an order that rotates from round to round, each in a fresh
 * process; a line of the report is a median over the rounds. Timing goals live here only and depend on the machine.
 * Exit code: 0 when everything could be measured (goals reached or not), 1 otherwise, 2 on wrong usage.
 */
import { cpus } from 'node:os';
import { parseArgs } from 'node:util';
import { bridgeCase } from './bridge-case.ts';
import { replayCase } from './replay-case.ts';
import { type BenchCase, type Line, type Sample, Samples } from './samples.ts';
import { stopAll } from './server-process.ts';
import { streamCases } from './stream-cases.ts';
import { isInMemory } from './workplace.ts';

const CASES = [...streamCases, bridgeCase, replayCase];
const RUN_TIMEOUT_MS = 60_000;

interface CaseRun {
  readonly bench: BenchCase;
  readonly samples: Samples;
  /** Why a variant is not run any more, by its name. */
  readonly failures: Map<string, string>;
}

interface CaseReport {
  readonly name: string;
  readonly lines: readonly Line[];
  readonly failures: readonly string[];
}

function rotated<T>(items: readonly T[], by: number): T[] {
  return items.map((_, i) => items[(i + by) % items.length] as T);
}

function withTimeout(sample: Promise<Sample>): Promise<Sample> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no end after ${RUN_TIMEOUT_MS / 1000} s`)), RUN_TIMEOUT_MS);
  });
  return Promise.race([sample, late]).finally(() => clearTimeout(timer));
}

/** A variant that fails once is left out of the rounds that follow; the others go on. */
async function runRound({ bench, samples, failures }: CaseRun, round: number): Promise<void> {
  for (const variant of rotated(bench.variants, round)) {
    if (failures.has(variant)) continue;
    try {
      samples.add(round, variant, await withTimeout(bench.run(variant)));
    } catch (error) {
      failures.set(
        variant,
        `${variant} in round ${round + 1}: ${error instanceof Error ? error.message : String(error)}`,
      );
      await stopAll();
    }
  }
}

function print(reports: readonly CaseReport[]): void {
  const rows = reports.flatMap(({ lines }) => lines);
  const width = (of: (line: Line) => string): number => Math.max(...rows.map((line) => of(line).length));
  const [what, goal, reached] = [width((l) => l.what), width((l) => l.goal), width((l) => l.reached)];
  for (const { name, lines, failures } of reports) {
    process.stdout.write(`\n${name}\n`);
    for (const line of lines) {
      const columns = [line.what.padEnd(what), line.goal.padStart(goal), line.reached.padStart(reached)];
      process.stdout.write(`  ${columns.join('  ')}  ${line.ok ? 'yes' : 'no '}  ${line.measured}\n`);
    }
    for (const failure of failures) process.stdout.write(`  FAILED ${failure}\n`);
  }
}

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { rounds: { type: 'string', default: '7' }, json: { type: 'boolean', default: false } },
  });
  const rounds = Number(values.rounds);
  const unknown = positionals.find((name) => !CASES.some((bench) => bench.name === name));
  if (unknown !== undefined || !Number.isInteger(rounds) || rounds < 1) {
    process.stderr.write(`usage: main.js [${CASES.map(({ name }) => name).join('|')}]... [--rounds N] [--json]\n`);
    return 2;
  }
  const chosen = CASES.filter(({ name }) => positionals.length === 0 || positionals.includes(name));
  const runs: CaseRun[] = chosen.map((bench) => ({ bench, samples: new Samples(), failures: new Map() }));
  const machine = `Node ${process.version}, ${cpus().length} x ${cpus()[0]?.model ?? 'unknown'}, ${rounds} rounds`;
  if (await isInMemory()) process.stderr.write('the temporary directory is in memory: set TMPDIR to a disk\n');
  for (let round = 0; round < rounds; round++) {
    process.stderr.write(`round ${round + 1} of ${rounds}\n`);
    for (const run of runs) await runRound(run, round);
  }
  const reports = runs.map(({ bench, samples, failures }) => ({
    name: bench.name,
    lines: bench.lines(samples),
    failures: [...failures.values()],
  }));
  if (values.json) process.stdout.write(`${JSON.stringify({ machine, cases: reports }, null, 2)}\n`);
  else {
    process.stdout.write(`${machine}\n`);
    print(reports);
  }
  return reports.some(({ failures }) => failures.length > 0) ? 1 : 0;
}

process.exitCode = await main();
