/** `acp-sidecar serve`: the process around the server. */
import type { Config } from '../config.ts';
import { watchWaysOut } from './ways-out.ts';

export async function serveAgent(config: Config, agent: { command: string; args: string[] }): Promise<number> {
  watchWaysOut();
  const { runServe } = await import('../server.ts');
  return runServe(config, agent);
}
