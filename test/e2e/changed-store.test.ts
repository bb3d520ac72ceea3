/** Clients that know nothing of the network, and a store that is another one when they come back. */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { transcriptOf } from '../../protocol/v1/fold.ts';
import { at, type Message } from '../support/json.ts';
import { type NetworkClient, connectClient, streamClient, toldBy } from '../support/network-clients.ts';
import { NetworkProxy } from '../support/network-proxy.ts';
import { testScope } from '../support/scope.ts';
import { type AgentLife, ScriptedAgent } from '../support/scripted-agent.ts';
import { Sidecar, runCommand } from '../support/sidecar.ts';
import { tempDir } from '../support/temp-dir.ts';
import { waitFor } from '../support/wait-for.ts';

const REPLAYED = 'What follows is the whole session from its beginning';
const noThought = (): Promise<void> => Promise.resolve();

const CLIENTS: [string, (scope: ReturnType<typeof testScope>, url: string) => Promise<NetworkClient>][] = [
  ['connect', (scope, url) => connectClient(scope, ['connect', url, '--heartbeat', '200ms'], noThought)],
  ['resumableStream', (scope, url) => streamClient(scope, url, noThought)],
];

/** A client with a session, behind a network that the test has in hand. */
class Place {
  readonly agent: ScriptedAgent;
  readonly sidecar: Sidecar;
  readonly network: NetworkProxy;
  readonly client: NetworkClient;
  readonly sessionId: string;
  readonly dir: string;
  /** The agent's id of the session in its newest process. */
  agentSession = 'agent-session-1';
  /** Index of the first update that came after the store was changed. */
  from = 0;

  private constructor(of: Pick<Place, 'agent' | 'sidecar' | 'network' | 'client' | 'sessionId' | 'dir'>) {
    this.agent = of.agent;
    this.sidecar = of.sidecar;
    this.network = of.network;
    this.client = of.client;
    this.sessionId = of.sessionId;
    this.dir = of.dir;
  }

  static async open(connect: (typeof CLIENTS)[number][1]): Promise<Place> {
    const scope = testScope();
    const agent = await ScriptedAgent.listen(scope);
    const sidecar = await Sidecar.start(scope, { agent: agent.command });
    const network = await NetworkProxy.listen(scope, Number(new URL(sidecar.wsUrl).port));
    const client = await connect(scope, `ws://127.0.0.1:${network.port}/acp`);
    const sessionId = await client.newSession();
    return new Place({ agent, sidecar, network, client, sessionId, dir: tempDir(scope) });
  }

  get life(): AgentLife {
    return this.agent.lives.at(-1) as AgentLife;
  }

  /** A turn in which the agent says `text`. */
  async turn(text: string, client: Pick<NetworkClient, 'prompt'> = this.client): Promise<void> {
    const answer = client.prompt(this.sessionId, `say ${text}`);
    const prompt = await this.prompted(`say ${text}`);
    this.life.say(this.agentSession, text);
    this.life.reply(prompt, { stopReason: 'end_turn' });
    expect(at((await answer).result, 'stopReason')).toBe('end_turn');
  }

  /** The prompt of the newest agent process that has this text in it. */
  async prompted(text: string): Promise<Message> {
    await waitFor('the prompt', () => this.prompts(text).length > 0);
    this.agentSession = String(at(this.prompts(text)[0], 'params', 'sessionId'));
    return this.prompts(text)[0] as Message;
  }

  /** What reached an agent with this text as the last block. */
  prompts(text: string): Message[] {
    const all = this.agent.lives.flatMap((life) => life.received.map(({ message }) => message));
    return all.filter(
      ({ method, params }) => method === 'session/prompt' && JSON.stringify(params).includes(`${text}"}]`),
    );
  }

  /** The sidecar is killed, the store changed, and another one started on it. */
  async changed<T>(change: () => T | Promise<T>): Promise<T> {
    this.network.refusing = true;
    await this.sidecar.kill();
    this.from = this.client.updates.length;
    const changed = await change();
    await this.sidecar.start();
    this.network.targetPort = Number(new URL(this.sidecar.wsUrl).port);
    this.network.refusing = false;
    return changed;
  }

  async command(...args: string[]): Promise<void> {
    const { code, stderr } = await runCommand([...args, '--store', this.sidecar.store]);
    expect(code, stderr).toBe(0);
  }

  /** Texts of what came since the store was changed. */
  newTexts(): string[] {
    return this.client.updates.slice(this.from).flatMap(({ params }) => {
      const text = at(params, 'update', 'content', 'text');
      return typeof text === 'string' ? [text] : [];
    });
  }

  async sees(text: string): Promise<void> {
    await waitFor(
      () => `${JSON.stringify(text)}; it saw ${JSON.stringify(this.newTexts())}`,
      () => this.newTexts().some((one) => one.includes(text)),
    );
  }

  /** One line says why, and what follows is what somebody sees who opens the session now. */
  async sawEverything(why: string): Promise<void> {
    const lines = this.newTexts().filter((text) => text.startsWith('[acp-sidecar]'));
    expect(lines).toEqual([expect.stringMatching(`${REPLAYED}: .*${why}`)]);
    const since = this.client.updates.slice(this.from);
    const begin = since.findIndex(({ params }) => JSON.stringify(params).includes(REPLAYED));
    expect(begin).toBe(0);
    const fresh = await this.sidecar.unix();
    await fresh.initialize();
    await fresh.load(this.sessionId);
    const recorded = fresh.updates(this.sessionId).map(({ message }) => ({ params: message.params ?? {} }));
    expect(transcriptOf(toldBy(since.slice(1), this.sessionId))).toEqual(
      transcriptOf(toldBy(recorded, this.sessionId)),
    );
  }
}

describe.each(CLIENTS)('a client on %s whose store was changed while it was away', (_name, connect) => {
  it('[RC5] diverged: one line says how much was not recorded, nothing comes twice, and it goes on', async () => {
    const place = await Place.open(connect);
    await place.turn('kept. ');
    const answer = place.client.prompt(place.sessionId, 'more');
    await place.prompted('more');
    place.life.say(place.agentSession, 'also kept. ');
    const call = { sessionUpdate: 'tool_call', toolCallId: 'call-1', title: 'Look', status: 'in_progress' };
    place.life.update(place.agentSession, call);
    place.life.say(place.agentSession, 'lost');
    await place.sees('lost');
    await place.changed(() => undefined);
    expect(at((await answer).error, 'data')).toMatchObject({ code: 'PROMPT_OUTCOME_UNKNOWN' });
    expect(place.newTexts()).toEqual([expect.stringContaining('its last 4 characters are not in the session')]);
    const closed = place.client.updates.slice(place.from).map(({ params }) => at(params, 'update', 'status'));
    expect(closed.filter((status) => status !== undefined)).toEqual(['failed']);
    await place.turn('afterwards');
    expect(place.newTexts().slice(1)).toEqual([expect.stringContaining('new agent session'), 'afterwards']);
  });

  it('[RC6] foreign: the session of another store under the same id is shown from its beginning', async () => {
    const place = await Place.open(connect);
    await place.turn('one');
    const answer = place.client.prompt(place.sessionId, 'running');
    await place.prompted('running');
    const file = join(place.dir, 'session.ndjson');
    await place.changed(async () => {
      await place.command('export', place.sessionId, '--out', file);
      rmSync(place.sidecar.store, { recursive: true });
      await place.command('import', file);
    });
    // The log that was imported knows the prompt and what became of it.
    expect(at((await answer).error, 'data')).toMatchObject({ code: 'PROMPT_OUTCOME_UNKNOWN' });
    await place.sawEverything('another log');
    await place.turn('two');
    expect(place.newTexts().filter((text) => text === 'two').length).toBe(1);
    expect(place.prompts('running').length).toBe(1);
  });

  it('[RC6] foreign: a backup is another store, also when it says the same and in the same file', async () => {
    const place = await Place.open(connect);
    await place.turn('one');
    await place.changed(async () => {
      await place.command('backup', join(place.dir, 'copy'));
      // Into the file that is there, as `cp` does.
      writeFileSync(join(place.sidecar.store, 'data.mdb'), readFileSync(join(place.dir, 'copy/data.mdb')));
    });
    await place.sees('say one');
    await place.sawEverything('another log');
    await place.turn('two');
  });

  it('[RC6] [RC2] ahead: an older state of the same store is shown from its beginning, and a prompt it does not have is not run again', async () => {
    const place = await Place.open(connect);
    await place.turn('one');
    // No backup, which would have another log: as when a volume is set back.
    const file = join(place.sidecar.store, 'data.mdb');
    const older = await place.changed(() => readFileSync(file));
    await place.turn('two');
    const answer = place.client.prompt(place.sessionId, 'dangerous');
    await place.prompted('dangerous');
    await place.changed(() => writeFileSync(file, older));
    expect(at((await answer).error, 'data')).toMatchObject({ kind: 'interrupted', code: 'PROMPT_OUTCOME_UNKNOWN' });
    await place.sawEverything('older than what is shown');
    expect(place.newTexts()).not.toContain('two');
    await place.turn('three');
    expect(place.prompts('dangerous').length).toBe(1);
  });

  it('[RC6] expired: what is left of a pruned session is shown from its beginning', async () => {
    const place = await Place.open(connect);
    await place.turn('one');
    place.network.refusing = true;
    place.network.cut();
    const other = await place.sidecar.unix();
    await other.initialize();
    await other.load(place.sessionId);
    const prompt = async (sessionId: string, text: string): Promise<{ result: unknown }> => ({
      result: await other.prompt(sessionId, text),
    });
    for (const text of ['two', 'three', 'four']) await place.turn(text, { prompt });
    await place.changed(() => place.command('prune', place.sessionId, '--retain-events', '4'));
    await place.sees('four');
    await place.sawEverything('expired');
    expect(place.newTexts()).not.toContain('two');
    await place.turn('five');
  });
});
