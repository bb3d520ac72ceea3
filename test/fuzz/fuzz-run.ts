/**
 * A real sidecar under fire from both sides, in rounds. In each round clients and the agent send what `messages.ts`
 * makes; then the well-behaved must find everything as it should be:
 *
 *   - each sentinel has a session of its own: a prompt of it is answered in time, with its text;
 *   - no message that a sentinel got, and none that a client got whose token is limited to one session, holds the mark
 *     of another session;
 *   - everything that anybody got is JSON (`RawClient` fails otherwise), and the process is the same.
 *
 * At the end the store is verified, and read again by a new process.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { at, isRequest, type Message } from '../support/json.ts';
import { RawClient } from '../support/raw-client.ts';
import { Scope } from '../support/scope.ts';
import { type AgentLife, ScriptedAgent } from '../support/scripted-agent.ts';
import { seededRandom } from '../support/seeded-random.ts';
import { runCommand, Sidecar } from '../support/sidecar.ts';
import { ownMemoryMiB } from '../support/sidecar-facts.ts';
import { tempDir } from '../support/temp-dir.ts';
import { waitFor } from '../support/wait-for.ts';
import { Messages, type Pools } from './messages.ts';

export interface FuzzOptions {
  readonly seed: number;
  /** Asked before each round. */
  readonly goOn: (round: number) => boolean;
  readonly report?: (line: string) => void;
}

export interface FuzzReport {
  readonly rounds: number;
  readonly fromClients: number;
  readonly fromAgent: number;
  readonly agentLives: number;
  /** MiB after each round. */
  readonly memory: readonly number[];
}

const SENTINELS = 3;
const VICTIMS = 3;
const GUEST_TOKEN = 'guest-token-0123456789abcdef';
const OWNER_TOKEN = 'owner-token-0123456789abcdef';
const MARK = /MARK-(\d+)-/g;

interface Place {
  readonly n: number;
  readonly sessionId: string;
  readonly agentSessionId: string;
}

export async function runFuzz(scope: Scope, options: FuzzOptions): Promise<FuzzReport> {
  const run = await FuzzRun.start(scope, options);
  let rounds = 0;
  const memory: number[] = [];
  while (options.goOn(rounds)) {
    try {
      await run.round(rounds);
    } catch (error) {
      const { stderr } = run.sidecar;
      throw new Error(`round ${rounds}: ${String(error)}\nthe sidecar's log:\n${stderr.slice(-3000)}`, {
        cause: error,
      });
    }
    memory.push(ownMemoryMiB(run.sidecar));
    options.report?.(
      `round ${rounds}: ${run.fromClients} + ${run.fromAgent} messages, ${memory.at(-1)?.toFixed(0)} MiB`,
    );
    rounds++;
  }
  await run.end();
  return { rounds, fromClients: run.fromClients, fromAgent: run.fromAgent, agentLives: run.agent.lives.length, memory };
}

class FuzzRun {
  readonly sidecar: Sidecar;
  readonly agent: ScriptedAgent;
  readonly places: Place[] = [];
  readonly victims: Place[] = [];
  fromClients = 0;
  fromAgent = 0;
  readonly #scope: Scope;
  readonly #messages: Messages;
  readonly #pid: number;
  readonly #cursors: string[] = [];
  /** Requests of the sidecar that the agent has not answered. */
  readonly #asked: string[] = [];
  /** The sessions that live in the agent's process: what it says of others belongs to whoever is active. */
  readonly #live = new Set<string>();
  #made = 0;
  /** What a sentinel's prompt waits for, by agent session. */
  readonly #expected = new Map<string, string>();

  static async start(scope: Scope, { seed }: FuzzOptions): Promise<FuzzRun> {
    const agent = await ScriptedAgent.listen(scope);
    const tokens = join(tempDir(scope), 'tokens');
    const guest = `${GUEST_TOKEN} controller guest session=agent-session-1`;
    writeFileSync(tokens, `${OWNER_TOKEN}\n${guest}\n`, { mode: 0o600 });
    agent.handlers.set('initialize', () => ({
      protocolVersion: 1,
      agentCapabilities: { sessionCapabilities: { resume: {}, close: {}, list: {} } },
    }));
    const args = [
      '--token-file',
      tokens,
      '--max-message-bytes',
      '256KiB',
      // A sentinel that gets what everybody is sent must not lag so far behind that it is closed.
      '--client-buffer-bytes',
      '16MiB',
      '--max-open-sessions',
      '24',
      '--log-level',
      'warn',
    ];
    const sidecar = await Sidecar.start(scope, { agent: agent.command, args });
    const run = new FuzzRun(scope, sidecar, agent, seed);
    agent.intercept = (received, life) => run.#agentReceived(received.message, life);
    const client = await sidecar.unix();
    await client.initialize();
    for (let n = 1; n <= SENTINELS + VICTIMS; n++) {
      const place = { n, sessionId: await client.newSession(), agentSessionId: `agent-session-${n}` };
      (n <= SENTINELS ? run.places : run.victims).push(place);
    }
    client.close();
    return run;
  }

  private constructor(scope: Scope, sidecar: Sidecar, agent: ScriptedAgent, seed: number) {
    this.#scope = scope;
    this.sidecar = sidecar;
    this.agent = agent;
    this.#messages = new Messages(seededRandom(seed));
    this.#pid = sidecar.pid;
  }

  async round(n: number): Promise<void> {
    const inner = new Scope();
    try {
      const m = this.#messages;
      const sentinels = await Promise.all(this.places.map((place) => this.#sentinel(inner, place)));
      const guest = await this.#connect(inner, GUEST_TOKEN);
      const wild = [
        await this.#connect(inner, OWNER_TOKEN),
        await this.sidecar.unix(inner),
        await this.sidecar.unix(inner),
      ];
      for (const client of wild)
        client.sendMessage({ id: 'i', method: 'initialize', params: { protocolVersion: 1, clientCapabilities: {} } });
      for (let i = 0; i < 60; i++) {
        this.#clientSends(m.pick(wild));
        if (m.chance(0.3)) this.#guestSends(guest);
        if (m.chance(0.7)) this.#agentSends();
        // Everybody gets a moment now and then, so that the orders differ.
        if (m.chance(0.1)) await new Promise((resolve) => setImmediate(resolve));
      }
      if (m.chance(0.05)) this.agent.lives.at(-1)?.exit(m.int(3));
      await this.#wellBehaved(sentinels, n);
      for (const [i, sentinel] of sentinels.entries()) this.#noMarkBut(sentinel, this.places[i] as Place, 'a sentinel');
      this.#noMarkBut(guest, this.places[0] as Place, 'a client whose token names one session');
      for (const client of wild) this.#collectCursors(client);
      if (this.sidecar.pid !== this.#pid) throw new Error('the sidecar is another process');
    } finally {
      await inner.end();
    }
  }

  /** The store is whole, and a new process reads it and gives each session its own. */
  async end(): Promise<void> {
    await this.sidecar.kill();
    const verified = await runCommand(['verify', '--store', this.sidecar.store]);
    if (verified.code !== 0) throw new Error(`verify: ${verified.code} ${verified.stdout}${verified.stderr}`);
    await this.sidecar.start();
    for (const place of this.places) {
      const client = await this.#sentinel(this.#scope, place, 'load');
      this.#noMarkBut(client, place, 'a replay after a crash');
    }
  }

  async #connect(scope: Scope, token: string): Promise<RawClient> {
    const client = await this.sidecar.webSocket(scope, { headers: { authorization: `Bearer ${token}` } });
    await client.initialize({ sidecar: { name: 'fuzz' } });
    return client;
  }

  async #sentinel(scope: Scope, place: Place, how?: 'load'): Promise<RawClient> {
    const client = await this.sidecar.unix(scope);
    await client.initialize({ capabilities: {}, ...(this.#messages.chance(0.5) ? { sidecar: true } : {}) });
    if (how === 'load' || this.#messages.chance(0.1)) await client.load(place.sessionId);
    else await client.resume(place.sessionId);
    return client;
  }

  #clientSends(client: RawClient): void {
    if (client.closed) return;
    const m = this.#messages;
    const wire = m.fromClient(
      this.#poolsOf(
        client,
        this.victims.map(({ sessionId }) => sessionId),
      ),
    );
    this.fromClients++;
    const way = m.random();
    if (way < 0.75) client.send(wire);
    else if (way < 0.97) client.transport.sendBytes(Buffer.concat([m.broken(wire), Buffer.from('\n')]));
    else if (way < 0.98) client.send('x'.repeat(300 * 1024));
    else if (way < 0.985) client.cut();
    else client.transport.sendBytes(Buffer.from(Array.from({ length: m.int(200) }, () => m.int(256))));
  }

  /** It may name everything there is; it must be shown its own session only. */
  #guestSends(guest: RawClient): void {
    if (guest.closed) return;
    const m = this.#messages;
    const all = [...this.places, ...this.victims].flatMap(({ sessionId, agentSessionId }) => [
      sessionId,
      agentSessionId,
    ]);
    const own = this.places[0]?.sessionId ?? '';
    const wire = m.fromClient(this.#poolsOf(guest, [...all, own, own]));
    // Its own session is a sentinel's: it may look at it, not end it.
    if (/"session\/(delete|close|cancel|prompt)"/.test(wire) && wire.includes(`"${own}"`)) return;
    this.fromClients++;
    guest.send(wire);
  }

  #poolsOf(client: RawClient, sessions: readonly string[]): Pools {
    const waiting = client.received
      .slice(-20)
      .flatMap(({ message }) => (isRequest(message) ? [JSON.stringify(message.id)] : []));
    return { sessions, cursors: this.#cursors, waiting };
  }

  #agentSends(): void {
    const life = this.agent.lives.at(-1);
    if (!life || life.closed) return;
    const m = this.#messages;
    const { agentSessionId, n } = m.pick(m.chance(0.3) ? this.places : this.victims);
    const unknown = m.chance(0.1) || !this.#live.has(agentSessionId);
    const pools = { sessions: [], cursors: [], waiting: this.#asked.slice(-10) };
    this.fromAgent++;
    const way = m.random();
    if (way < 0.8)
      life.line(m.fromAgent(unknown ? m.string() : agentSessionId, unknown ? 'nobody' : `MARK-${n}-`, pools));
    // A broken message may name another session, so it carries no mark.
    else if (way < 0.97)
      life.write(Buffer.concat([m.broken(m.fromAgent(agentSessionId, 'nobody', pools)), Buffer.from('\n')]));
    else if (way < 0.98) life.line(m.fromAgent(agentSessionId, 'y'.repeat(300 * 1024), pools));
    else
      life.write(Buffer.concat([Buffer.from(Array.from({ length: m.int(200) }, () => m.int(256))), Buffer.from('\n')]));
  }

  /** What the agent does with requests: right for sentinels and for what keeps it alive, anything for the others. */
  #agentReceived(message: Message, life: AgentLife): boolean {
    if (!isRequest(message)) return true;
    const m = this.#messages;
    const { method } = message;
    const named = at(message, 'params', 'sessionId');
    const sessionId = typeof named === 'string' ? named : '';
    if (method === 'initialize') this.#live.clear();
    if (method === 'session/new') this.#live.add(`agent-session-${++this.#made}`);
    // What an agent accepted once is repeated in each new process; one that then never answers is of no use to anybody.
    if (method === 'session/resume' || method === 'authenticate') {
      if (method === 'session/resume') this.#live.add(sessionId);
      life.reply(message, {});
      return true;
    }
    if (method === 'initialize' || method === 'session/new') return false;
    const place = this.places.find((entry) => entry.agentSessionId === sessionId);
    if (method === 'session/prompt' && place) {
      const expected = this.#expected.get(sessionId);
      if (expected !== undefined) life.say(sessionId, expected);
      life.reply(message, { stopReason: 'end_turn' });
    } else if (m.chance(0.2)) this.#asked.push(JSON.stringify(message.id));
    else if (m.chance(0.8)) life.reply(message, method === 'session/prompt' ? { stopReason: 'end_turn' } : m.json());
    else life.fail(message, -32603, m.string());
    return true;
  }

  async #wellBehaved(sentinels: readonly RawClient[], round: number): Promise<void> {
    await Promise.all(
      sentinels.map(async (client, i) => {
        const { n, sessionId, agentSessionId } = this.places[i] as Place;
        for (let attempt = 0; ; attempt++) {
          const text = `MARK-${n}-round-${round}-attempt-${attempt}.`;
          this.#expected.set(agentSessionId, text);
          const { message } = await client.ask('session/prompt', {
            sessionId,
            prompt: [{ type: 'text', text: 'hello' }],
          });
          if (!message.error) {
            await client
              .until('the text of its turn', () => client.agentText(sessionId).includes(text))
              .catch((error: unknown) => this.#withEvents(sessionId, error));
            return;
          }
          // The agent was ended in this round, or the session lives elsewhere in its next life.
          const kind = at(message, 'error', 'data', 'kind');
          if (attempt >= 5 || !['interrupted', 'agent_unavailable', 'session_busy'].includes(String(kind))) {
            throw new Error(`round ${round}: a sentinel's prompt failed: ${JSON.stringify(message.error)}`);
          }
          await this.#settled();
        }
      }),
    );
  }

  /** @throws with what the log has */
  async #withEvents(sessionId: string, error: unknown): Promise<never> {
    const { stdout } = await runCommand(['export', sessionId, '--store', this.sidecar.store]);
    throw new Error(`${String(error)}\nthe log:\n${stdout.split('\n').slice(-12).join('\n')}`, { cause: error });
  }

  /** A new agent process counts its sessions on: the sentinels' may have new ids there. */
  async #settled(): Promise<void> {
    await waitFor('an agent', () => this.agent.lives.at(-1));
  }

  #noMarkBut(client: RawClient, place: Place, who: string): void {
    for (const { text } of client.received) {
      for (const [, n] of text.matchAll(MARK)) {
        if (Number(n) !== place.n)
          throw new Error(`${who} of session ${place.n} got what belongs to ${n}:\n${text.slice(0, 2000)}`);
      }
    }
  }

  #collectCursors(client: RawClient): void {
    for (const cursor of client.cursors.values()) this.#cursors.push(cursor);
    this.#cursors.splice(0, Math.max(0, this.#cursors.length - 50));
  }
}
