import { onTestFinished } from 'vitest';

/** What a test (or a suite) started, undone in reverse order. Every undo runs, then what failed is thrown. */
export class Scope {
  readonly #undo: (() => unknown)[] = [];

  defer(undo: () => unknown): void {
    this.#undo.push(undo);
  }

  async end(): Promise<void> {
    const failures: unknown[] = [];
    for (let undo = this.#undo.pop(); undo; undo = this.#undo.pop()) {
      try {
        await undo();
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 1) throw new AggregateError(failures, 'several things could not be undone');
    if (failures.length === 1) throw failures[0] as Error;
  }
}

/** A scope that ends with the running test. */
export function testScope(): Scope {
  const scope = new Scope();
  onTestFinished(() => scope.end());
  return scope;
}
