/** What the rounds of one case measured, and how it becomes lines of the report. */

/** Named figures of one run; the unit is in the name. */
export type Sample = Readonly<Record<string, number>>;

export interface Line {
  readonly what: string;
  readonly goal: string;
  /** The figure the goal is about. */
  readonly reached: string;
  /** The figures it was made of. */
  readonly measured: string;
  readonly ok: boolean;
}

export interface BenchCase {
  readonly name: string;
  readonly variants: readonly string[];
  run(variant: string): Promise<Sample>;
  lines(samples: Samples): readonly Line[];
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const upper = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? Number.NaN) + upper) / 2;
}

export class Samples {
  readonly #rounds: Map<string, Sample>[] = [];

  add(round: number, variant: string, sample: Sample): void {
    (this.#rounds[round] ??= new Map()).set(variant, sample);
  }

  /** NaN when the variant never ran. */
  median(variant: string, key: string): number {
    return this.paired(key, [variant], (value) => value);
  }

  /**
   * The median over the rounds of a figure made of several variants' values of the same round, so that what slows the
   * whole machine for a while falls on both sides of it.
   */
  paired(key: string, variants: readonly string[], of: (...values: number[]) => number): number {
    const figures: number[] = [];
    for (const round of this.#rounds) {
      const values = variants.map((variant) => round?.get(variant)?.[key] ?? Number.NaN);
      if (!values.some(Number.isNaN)) figures.push(of(...values));
    }
    return median(figures);
  }
}

export type Unit = (value: number) => string;

export const units = {
  times: (value: number) => `${value.toFixed(2)}x`,
  micros: (value: number) => `${value.toFixed(value < 10 && value > -10 ? 2 : 0)} us`,
  millis: (value: number) => `${value.toFixed(value < 10 ? 2 : 0)} ms`,
  rate: (value: number) => `${(value / 1000).toFixed(0)}k/s`,
  count: (value: number) => value.toFixed(0),
  mebibytes: (value: number) => `${value.toFixed(0)} MiB`,
} satisfies Record<string, Unit>;

type Goal = { readonly atLeast: number } | { readonly atMost: number };

/** A line that says whether `value` meets `goal`; a value that could not be measured does not. */
export function lineOf(what: string, value: number, goal: Goal, unit: Unit, measured = ''): Line {
  const ok = 'atLeast' in goal ? value >= goal.atLeast : value <= goal.atMost;
  const wanted = 'atLeast' in goal ? `>= ${unit(goal.atLeast)}` : `<= ${unit(goal.atMost)}`;
  return { what, goal: wanted, reached: Number.isNaN(value) ? '-' : unit(value), measured, ok };
}

/** `first message after 3 ms`; nothing when the figure could not be measured. */
export function noteOf(label: string, value: number, unit: Unit): string {
  return Number.isNaN(value) ? '' : `${label} ${unit(value)}`;
}

export function notes(...parts: readonly string[]): string {
  return parts.filter((part) => part !== '').join('; ');
}

/** `sidecar 801k/s; cork 562k/s`, without the variants that never ran. */
export function mediansOf(samples: Samples, key: string, variants: readonly string[], unit: Unit): string {
  return notes(...variants.map((variant) => noteOf(variant, samples.median(variant, key), unit)));
}
