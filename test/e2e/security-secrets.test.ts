/** Secrets go where they are needed and nowhere else: the whole store, the log, the metrics and every error are searched. */
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { testScope } from '../support/scope.ts';
import { ScriptedAgent } from '../support/scripted-agent.ts';
import { runCommand, Sidecar } from '../support/sidecar.ts';
import { setStage } from '../support/stage.ts';
import { tempDir } from '../support/temp-dir.ts';
import { waitFor } from '../support/wait-for.ts';

const TOKEN = 'SECRET-token-0123456789abcdef';

function filesOf(dir: string): string[] {
  return (
    readdirSync(dir, { recursive: true, withFileTypes: true })
      // The ballast is of random bytes, and has another name until it is whole.
      .filter((entry) => entry.isFile() && !entry.name.startsWith('ballast'))
      .map((entry) => join(entry.parentPath, entry.name))
  );
}

/** Where a text is, as it is or in base64, among the files below a directory. */
function findIn(dir: string, secret: string): string[] {
  const forms = [secret, Buffer.from(secret).toString('base64').slice(0, -4)].map((form) => Buffer.from(form));
  return filesOf(dir).filter((path) => {
    const bytes = readFileSync(path);
    return forms.some((form) => bytes.includes(form));
  });
}

const servers = (n: string): object[] => [
  {
    name: `files-${n}`,
    command: '/bin/srv',
    args: [`--key=SECRET-arg-${n}`],
    env: [{ name: 'KEY', value: `SECRET-env-${n}` }],
  },
  {
    type: 'http',
    name: `web-${n}`,
    url: `https://user:SECRET-url-${n}@mcp.example/?k=SECRET-query-${n}`,
    headers: [{ name: 'Authorization', value: `Bearer SECRET-header-${n}` }],
  },
];

describe('secrets', () => {
  it('[EV7] T21: those of mcpServers, auth, providers and tokens are in no file, log line, metric or error', async () => {
    const scope = testScope();
    const agent = await ScriptedAgent.listen(scope);
    agent.handlers.set('initialize', () => ({ protocolVersion: 1, agentCapabilities: { loadSession: true } }));
    for (const method of ['authenticate', 'providers/set', 'auth/status', 'mcp/message', 'session/load']) {
      agent.handlers.set(method, () => ({}));
    }
    const tokens = join(tempDir(scope), 'tokens');
    writeFileSync(tokens, `${TOKEN} controller alice\n`, { mode: 0o600 });
    const args = ['--token-file', tokens, '--log-level', 'trace'];
    const sidecar = await Sidecar.start(scope, { agent: agent.command, args });
    const client = await sidecar.webSocket(scope, { headers: { authorization: `Bearer ${TOKEN}` } });
    await client.initialize({ sidecar: true });
    const life = await agent.life();
    await client.request('authenticate', { methodId: 'key', _meta: { apiKey: 'SECRET-auth' } });
    await client.request('providers/set', { id: 'p', apiKey: 'SECRET-provider' });
    const sessionId = await client.newSession('/tmp', { mcpServers: servers('new') });
    client.notify('mcp/message', { connectionId: 'c', message: { token: 'SECRET-mcp' } });
    const prompt = client.prompt(sessionId, 'PROMPT-TEXT that only the log may hold');
    const asked = await life.saw('session/prompt');
    life.say('agent-session-1', 'ANSWER-TEXT');
    life.send({ method: 'auth/status_update', params: { account: 'SECRET-account' } });
    life.line('{"jsonrpc":"2.0","method":"session/update","params":SECRET-broken');
    life.line('SECRET-noise on stdout');
    life.reply(asked.message, { stopReason: 'end_turn' });
    await prompt;
    // A new agent process is authenticated again and gets the servers of the newest load.
    await client.load(sessionId, undefined, { mcpServers: servers('load') });
    life.exit(3);
    await client.until('the end of the agent', ({ text }) => text.includes('"state":"exited"'));
    const again = client.prompt(sessionId, 'go on');
    const second = await agent.life(1);
    const more = await second.saw('session/prompt');
    const got = second.received.map(({ text }) => text).join('\n');
    for (const secret of ['SECRET-auth', 'SECRET-env-load', 'SECRET-header-load', 'SECRET-url-load']) {
      expect(got, 'the agent gets what it needs').toContain(secret);
    }
    second.reply(more.message, { stopReason: 'end_turn' });
    await again;
    // Errors of ours, with secrets in what they are about.
    for (const text of [
      '{"jsonrpc":"2.0","id":1,"method":"session/load","params":{"sessionId":"none","mcpServers":[{"env":"SECRET-wrong"}]}}',
      '{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"mcpServers":["SECRET-wrong"]}}',
      '{"jsonrpc":"2.0","id":3,"method":7,"params":{"key":"SECRET-wrong"}}',
    ]) {
      client.send(text);
    }
    await client.until('three errors', ({ message }) => message.id === 2 && message.error !== undefined);
    const url = sidecar.wsUrl.replace(/^ws/, 'http').replace(/acp$/, 'metrics');
    const metrics = await (await fetch(url, { headers: { authorization: `Bearer ${TOKEN}` } })).text();
    expect(metrics).toContain('acp_sidecar');
    const errors = client.received.filter(({ message }) => message.error).map(({ text }) => text);
    const places: Readonly<Record<string, string>> = { log: sidecar.stderr, metrics, errors: errors.join('\n') };
    for (const [place, text] of Object.entries(places)) {
      const at = text.indexOf('SECRET');
      expect(at < 0 ? '' : text.slice(Math.max(0, at - 100), at + 60), place).toBe('');
      expect(text.includes('PROMPT-TEXT') || text.includes('ANSWER-TEXT'), place).toBe(false);
    }
    expect(findIn(sidecar.store, 'SECRET-')).toEqual([]);
    expect(findIn(sidecar.store, TOKEN)).toEqual([]);
    expect(findIn(sidecar.store, 'PROMPT-TEXT').length).toBeGreaterThan(0);
    expect(findIn(sidecar.store, 'web-new').length).toBeGreaterThan(0);
    await sidecar.stop();
    expect(findIn(sidecar.store, 'SECRET-')).toEqual([]);
    expect(sidecar.stderr).not.toContain('SECRET');
  });

  it('T22: files are 0600 and directories 0700, whatever the umask; nobody else can read what was said', async () => {
    const stage = await setStage(testScope());
    const { sidecar, client, sessionId } = stage;
    await (await stage.turn()).end();
    await client.ask('_sidecar/history', { sessionId });
    const entries = readdirSync(sidecar.store, { recursive: true, withFileTypes: true });
    expect(entries.length).toBeGreaterThan(3);
    const wrong = [sidecar.store, ...entries.map((entry) => join(entry.parentPath, entry.name))].filter((path) => {
      const found = statSync(path, { throwIfNoEntry: false });
      return found && (found.mode & 0o077) !== 0;
    });
    expect(wrong).toEqual([]);
    expect(statSync(sidecar.socketPath).mode & 0o777).toBe(0o600);
  });

  it('T23: what --redact matches is taken out of the log, and of what the agent prints wherever that goes', async () => {
    const stage = await setStage(testScope(), { args: ['--redact', 'sk-[a-z0-9]+', '--redact', 'hunter\\d'] });
    stage.life.stderr('using key sk-abc123 and password hunter2\n');
    await waitFor('the line', () => stage.sidecar.stderr.includes('using key'));
    expect(stage.sidecar.stderr).not.toMatch(/sk-abc123|hunter2/);
    // The last lines of an agent that ends in a turn are told and kept.
    const turn = await stage.turn();
    stage.life.exit(1);
    const { text } = await turn.answer;
    expect(text).toContain('using key [redacted]');
    expect(text).not.toMatch(/sk-abc123|hunter2/);
    expect(findIn(stage.sidecar.store, 'using key')).not.toEqual([]);
    expect(findIn(stage.sidecar.store, 'sk-abc123')).toEqual([]);
  });

  it('T24: a secret that the command line gave the agent is in no file of the store', async () => {
    const scope = testScope();
    const agent = await ScriptedAgent.listen(scope);
    const command = [...agent.command, '--api-key=SECRET-argument'];
    const sidecar = await Sidecar.start(scope, { agent: command, env: { API_KEY: 'SECRET-environment' } });
    const client = await sidecar.unix();
    await client.initialize();
    await client.newSession();
    expect((await agent.life()).env['API_KEY']).toBe('SECRET-environment');
    expect(findIn(sidecar.store, 'SECRET-')).toEqual([]);
    expect(sidecar.stderr).not.toContain('SECRET-');
    expect((await runCommand(['sessions', '--store', sidecar.store])).stdout).not.toContain('SECRET-');
  });
});
