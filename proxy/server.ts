import type { Config } from './config.ts';

/** Runs until a signal or a failure; resolves to the exit code. */
export async function runServe(_config: Config, _agent: { command: string; args: string[] }): Promise<number> {
  throw new Error('not built yet');
}
