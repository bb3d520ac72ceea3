/**
 * Faults at every place of scripted turns with tools and approvals: the sidecar or the agent is killed at a line or a
 * commit, a write fails, a flush fails, the disk is full for a while. Afterwards the log opens, nothing is left open in
 * it, no prompt reached the agent twice, and what a fresh client is shown is a beginning of what was really done, with
 * the repair behind it.
 *
 * 25 seeds; `FAULT_RUNS=500` for more, `FAULT_SEED=n` for one.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, expect, it } from 'vitest';
import { at, updateOf } from '../support/json.ts';
import { faultyStoreProgram } from '../support/faulty-store.ts';
import type { RawClient } from '../support/raw-client.ts';
import { Scope } from '../support/scope.ts';
import { faultAgentCommand } from '../support/scripted-agent.ts';
import { seededRandom } from '../support/seeded-random.ts';
import { Sidecar } from '../support/sidecar.ts';
import { STORE_FAULTS } from '../support/store-faults.ts';
import { tempDir } from '../support/temp-dir.ts';

const RUNS = Number(process.env['FAULT_RUNS'] ?? 25);
const FIRST = Number(process.env['FAULT_SEED'] ?? 1);
const PROMPTS = ['alpha', 'beta', 'gamma'];
const ATTEMPTS = 16;
const LANES = 4;

let program = '';
beforeAll(async () => {
  program = await faultyStoreProgram();
});

/** Where and how it strikes, once. */
interface Plan {
  readonly store?: string;
  readonly agent?: string;
}

function planOf(random: () => number): Plan {
  const upTo = (n: number): number => 1 + Math.floor(random() * n);
  if (random() < 0.5) return { store: `${upTo(24)} ${STORE_FAULTS[Math.floor(random() * STORE_FAULTS.length)] ?? ''}` };
  const victim = random() < 0.5 ? 'agent' : 'sidecar';
  return { agent: random() < 0.3 ? `in ${upTo(8)} ${victim}` : `out ${upTo(32)} ${victim}` };
}

interface DiaryEntry {
  readonly prompt?: string;
  readonly toolCallId?: string;
  readonly said?: string;
  readonly ran?: string;
  readonly ended?: string;
}

class Run {
  readonly #scope: Scope;
  readonly #random: () => number;
  readonly #diaryFile: string;
  readonly sidecar: Sidecar;
  sessionId: string | undefined;
  /** The answers that the client got, by prompt. */
  readonly answers = new Map<string, 'result' | 'error'>();

  constructor(scope: Scope, random: () => number, sidecar: Sidecar, diaryFile: string) {
    this.#scope = scope;
    this.#random = random;
    this.sidecar = sidecar;
    this.#diaryFile = diaryFile;
  }

  get diary(): DiaryEntry[] {
    if (!existsSync(this.#diaryFile)) return [];
    const lines = readFileSync(this.#diaryFile, 'utf8').split('\n');
    return lines.filter((line) => line !== '').map((line) => JSON.parse(line) as DiaryEntry);
  }

  /** A client on the session, of a sidecar that lives. */
  async connect(): Promise<RawClient> {
    const client = await this.sidecar.unix(this.#scope);
    client.handlers.set('session/request_permission', () => ({
      outcome: { outcome: 'selected', optionId: this.#random() < 0.7 ? 'yes' : 'no' },
    }));
    await client.initialize({ sidecar: { clientId: 'client' } });
    if (this.sessionId === undefined) this.sessionId = await client.newSession();
    else await client.load(this.sessionId);
    return client;
  }

  /** Runs a step until it works; a sidecar that ended is started again. */
  async insist<T>(step: () => Promise<T>): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await step();
      } catch (error) {
        if (attempt === ATTEMPTS) throw error;
        const ended = await Promise.race([
          this.sidecar.exited().then(() => true),
          new Promise<false>((resolve) => setTimeout(resolve, 400, false)),
        ]);
        if (ended) await this.sidecar.start();
      }
    }
  }

  async prompt(text: string): Promise<void> {
    await this.insist(async () => {
      const client = await this.connect();
      const params = {
        sessionId: this.sessionId ?? '',
        prompt: [{ type: 'text', text }],
        _meta: { sidecar: { promptId: text } },
      };
      const { message } = await client.ask('session/prompt', params);
      const retry = at(message.error, 'data', 'kind');
      if (retry === 'not_persisted') throw new Error('to be sent again');
      this.answers.set(text, message.error ? 'error' : 'result');
      client.close();
    });
  }
}

/** What a fresh client is shown of each turn. */
interface Shown {
  readonly user: string;
  agent: string;
}

async function look(
  run: Run,
): Promise<{ shown: Shown[]; tools: Map<string, Record<string, unknown>>; events: string[] }> {
  const client = await run.connect();
  const { sessionId = '' } = run;
  const loaded = await client.load(sessionId);
  expect(at(loaded, '_meta', 'sidecar', 'approvals')).toBe(0);
  expect(at(loaded, '_meta', 'sidecar', 'turn')).toBeUndefined();
  const shown: Shown[] = [];
  const tools = new Map<string, Record<string, unknown>>();
  const start = client.received.findLastIndex(({ message }) => at(message, 'params', 'phase') === 'begin');
  for (const { message } of client.updates(sessionId, start)) {
    const update = updateOf(message);
    const text = at(update, 'content', 'text');
    if (update?.['sessionUpdate'] === 'user_message_chunk') shown.push({ user: String(text), agent: '' });
    const last = shown.at(-1);
    if (update?.['sessionUpdate'] === 'agent_message_chunk' && last) last.agent += String(text);
    const { toolCallId } = update ?? {};
    if (typeof toolCallId === 'string') tools.set(toolCallId, { ...tools.get(toolCallId), ...update });
  }
  const page = await client.request('_sidecar/events', { sessionId, limit: 1000 });
  const events = (at(page, 'events') as { type: string; turnId?: string }[]).map(
    ({ type, turnId }) => `${type} ${turnId ?? ''}`,
  );
  client.close();
  return { shown, tools, events };
}

async function check(run: Run): Promise<void> {
  await run.sidecar.kill().catch(() => undefined);
  await run.sidecar.start();
  const diary = run.diary;
  const first = await look(run);
  const got = diary.flatMap(({ prompt, toolCallId }) => (toolCallId === undefined ? [] : [prompt]));
  expect(new Set(got).size, 'a prompt reaches the agent at most once').toBe(got.length);
  const users = first.shown.map(({ user }) => user);
  expect(new Set(users).size).toBe(users.length);
  for (const prompt of got) expect(users, 'what reached the agent is in the log').toContain(prompt);
  for (const { user, agent } of first.shown) {
    const said = diary
      .filter((entry) => entry.prompt === user)
      .map((entry) => entry.said ?? '')
      .join('');
    expect(said.startsWith(agent), `${user}: ${JSON.stringify(agent)} of ${JSON.stringify(said)}`).toBe(true);
    if (run.answers.get(user) === 'result') expect(agent, 'what was answered is whole').toBe(said);
  }
  for (const [toolCallId, tool] of first.tools) {
    expect(['completed', 'failed'], toolCallId).toContain(tool['status']);
    const code = at(tool, '_meta', 'sidecar', 'code');
    if (diary.some(({ ran }) => ran === toolCallId)) expect(code).not.toBe('TOOL_NOT_STARTED');
    if (code === undefined) expect(diary.some((entry) => entry.toolCallId === toolCallId)).toBe(true);
  }
  const turns = (type: string): string[] =>
    first.events.filter((event) => event.startsWith(`${type} `)).map((event) => event.slice(type.length + 1));
  expect(new Set(turns('turn_ended'))).toEqual(new Set(turns('turn_queued')));
  expect(turns('turn_ended')).toHaveLength(turns('turn_queued').length);
  for (const prompt of PROMPTS) expect(run.answers.has(prompt), `${prompt} was answered`).toBe(true);
  // Opened once more: nothing is added.
  await run.sidecar.kill();
  await run.sidecar.start();
  expect(await look(run)).toEqual(first);
}

async function runSeed(seed: number): Promise<void> {
  const random = seededRandom(seed);
  const plan = planOf(random);
  const scope = new Scope();
  const dir = tempDir(scope);
  const file = (name: string): string => join(dir, name);
  if (plan.store !== undefined) writeFileSync(file('store-fault'), plan.store);
  if (plan.agent !== undefined) writeFileSync(file('agent-fault'), plan.agent);
  const env = {
    STORE_FAULT_FILE: file('store-fault'),
    FAULT_AGENT_FILE: file('agent-fault'),
    FAULT_AGENT_DIARY: file('diary'),
  };
  const agent = faultAgentCommand();
  const sidecar = await Sidecar.start(scope, { agent, program, env, args: ['--drain', '0s'] });
  const run = new Run(scope, random, sidecar, file('diary'));
  try {
    for (const prompt of PROMPTS) await run.prompt(prompt);
    await check(run);
    await sidecar.kill();
  } catch (error) {
    const told = `seed ${seed}, ${JSON.stringify(plan)}`;
    throw new Error(`${told}: ${String(error)}\n${sidecar.stderr.slice(-3000)}`, { cause: error });
  } finally {
    await scope.end();
  }
}

it(`[DU1] [DU2] [RE1] [RE6] ${RUNS} runs with one fault each`, { timeout: 60_000 + RUNS * 20_000 }, async () => {
  let next = FIRST;
  // Most of a run is waiting for processes to start and to end.
  const lane = async (): Promise<void> => {
    while (next < FIRST + RUNS) await runSeed(next++);
  };
  await Promise.all(Array.from({ length: LANES }, lane));
});
