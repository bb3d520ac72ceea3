/** The agent process as a whole: what happens when it does not become ready. */
import { existsSync } from 'node:fs';
import { afterEach, describe, expect, it } from 'vitest';
import { AgentHost } from '../../../proxy/agent/agent-host.ts';
import type { AgentHandler } from '../../../proxy/agent/agent-link.ts';
import { endAllGroups } from '../../../proxy/agent/agent-process.ts';
import { loadConfig } from '../../../proxy/config.ts';
import { silentLogger } from '../../../proxy/log.ts';
import { Metrics } from '../../../proxy/metrics.ts';
import { testScope } from '../../support/scope.ts';
import { tempDir } from '../../support/temp-dir.ts';
import { waitFor } from '../../support/wait-for.ts';

const HANDLER: AgentHandler = {
  update: () => undefined,
  request: () => undefined,
  notification: () => undefined,
  oversized: () => undefined,
  readDone: () => undefined,
};

async function hostOf(script: string, exits: string[]): Promise<AgentHost> {
  const config = await loadConfig('serve', { flags: { store: [tempDir(testScope())] }, env: {}, cwd: '/' });
  const host = new AgentHost({
    command: process.execPath,
    args: ['-e', script],
    config,
    logger: silentLogger(),
    metrics: new Metrics(),
    trace: undefined,
    now: Date.now,
    handler: HANDLER,
    inputHeld: () => undefined,
    initializeMs: 400,
    exited: (message) => void exits.push(message),
  });
  host.setInitializeParams('{"protocolVersion":1}');
  return host;
}

afterEach(() => endAllGroups(0));

describe('an agent that does not become ready', () => {
  it('[AG10] never answers initialize: it is ended, its last words are told, and the next request starts it again', async () => {
    const exits: string[] = [];
    const host = await hostOf('process.stderr.write("thinking\\n"); process.stdin.resume()', exits);
    const first = host.ready();
    const pid = await waitFor('the process', () => host.pid);
    const ready = await first;
    expect(ready).toMatchObject({
      outcome: 'unavailable',
      error: { data: { kind: 'agent_unavailable', stderr: 'thinking' } },
    });
    await waitFor('its end', () => exits.length === 1 && !existsSync(`/proc/${pid}`));
    const second = host.ready();
    expect(await waitFor('another process', () => host.pid)).not.toBe(pid);
    expect(await second).toMatchObject({ outcome: 'unavailable' });
  });

  it('[AG10] ends at once, again and again: each start waits twice as long as the one before', async () => {
    const exits: string[] = [];
    const host = await hostOf('process.exit(3)', exits);
    const waits: number[] = [];
    for (let n = 1; n <= 3; n++) {
      const since = performance.now();
      expect(await host.ready()).toMatchObject({ outcome: 'unavailable' });
      await waitFor('its end', () => exits.length === n);
      waits.push(performance.now() - since);
    }
    // 0, 250 and 500 ms, and the time that a process takes.
    expect(waits[1]).toBeGreaterThan(240);
    expect(waits[2]).toBeGreaterThan(490);
    expect(exits[0]).toContain('exited with code 3');
  });
});
