import { isDeepStrictEqual } from 'node:util';
import { decodeWire, encodeWire, memberAt, setValue, splice } from '../../protocol/wire-text.ts';
import { at, isRequest, isResponse, type Message, type Received } from './json.ts';
import { type Exchange, exchangesOf, type Step } from './recorded-exchange.ts';
import type { RecordedLife } from './recording.ts';
import type { Scope } from './scope.ts';
import { type AgentLife, ScriptedAgent } from './scripted-agent.ts';

/** What the agent's process saw or wrote, in order. `index` is the recorded entry that was written. */
export interface Happened {
  readonly dir: 'in' | 'out';
  readonly text: string;
  readonly message: Message;
  readonly index?: number;
}

interface Running {
  readonly exchange: Exchange;
  readonly request: Message;
  at: number;
}

function withId(text: string, id: string): string {
  const wire = encodeWire(text);
  const found = memberAt(wire, ['id']);
  return decodeWire(found ? splice(wire, [setValue(found, encodeWire(id))]) : wire);
}

/**
 * Plays the agent's side of one recorded life. Each request gets the recorded exchange of its method and session
 * (a prompt: the one with the same content), each exchange once. Requests that the recording does not hold are answered
 * with "method not found", a repeated `initialize` with the recorded answer.
 *
 * A recorded order between two sessions is kept as far as their prompts have arrived; a step waits for an answer or a
 * cancel that the recording had before it. `happened` is what tests compare with: it tells what was really written.
 */
export class RecordedAgent {
  readonly happened: Happened[] = [];
  readonly agent: ScriptedAgent;
  readonly exchanges: readonly Exchange[];
  readonly #unused: Exchange[];
  readonly #running: Running[] = [];
  readonly #answered = new Set<number | string | null | undefined>();
  /** Sessions with a cancel that no step has taken. */
  readonly #cancelled: string[] = [];
  #waiting: (() => void)[] = [];
  #advancing = false;
  /** Pause after each message, so that readers see them one by one instead of merged. */
  paceMs = 0;

  private constructor(life: RecordedLife, agent: ScriptedAgent) {
    this.agent = agent;
    this.exchanges = exchangesOf(life);
    this.#unused = [...this.exchanges];
    agent.intercept = (received, process) => this.#receive(received, process);
  }

  static async listen(scope: Scope, life: RecordedLife): Promise<RecordedAgent> {
    return new RecordedAgent(life, await ScriptedAgent.listen(scope));
  }

  get command(): string[] {
    return this.agent.command;
  }

  /** Resolves when the recorded entry `index` has been written to stdout. */
  async emitted(index: number): Promise<void> {
    while (!this.happened.some((entry) => entry.index === index)) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  #receive({ text, message }: Received, process: AgentLife): boolean {
    this.happened.push({ dir: 'in', text, message });
    if (isResponse(message)) this.#answered.add(message.id);
    else if (message.method === 'session/cancel') this.#cancelled.push(String(at(message, 'params', 'sessionId')));
    else if (isRequest(message)) this.#start(message, process);
    void this.#advance(process);
    return true;
  }

  #start(request: Message, process: AgentLife): void {
    const exchange = this.#take(request);
    if (exchange) {
      while (this.#takeCancel(exchange.sessionId)); // What came too late for the turn before means nothing now.
      this.#running.push({ exchange, request, at: 0 });
      return;
    }
    const initialize = this.exchanges.find(({ method }) => method === 'initialize');
    if (request.method === 'initialize' && initialize) {
      this.#running.push({ exchange: initialize, request, at: 0 });
      return;
    }
    process.send({ id: request.id, error: { code: -32601, message: `Method not found: ${request.method}` } });
  }

  #take(request: Message): Exchange | undefined {
    const session = at(request, 'params', 'sessionId');
    const fits = this.#unused.filter((exchange) => {
      return exchange.method === request.method && (session === undefined || exchange.sessionId === session);
    });
    const prompt = at(request, 'params', 'prompt');
    const same = fits.find((exchange) => isDeepStrictEqual(at(exchange.request, 'params', 'prompt'), prompt));
    const exchange = same ?? (request.method === 'session/prompt' ? undefined : fits[0]);
    if (exchange) this.#unused.splice(this.#unused.indexOf(exchange), 1);
    return exchange;
  }

  /** Does every step that can be done now, in recorded order over all running exchanges. */
  async #advance(process: AgentLife): Promise<void> {
    if (this.#advancing) return;
    this.#advancing = true;
    for (let next = this.#next(); next; next = this.#next()) {
      const step = next.exchange.steps[next.at++] as Step;
      if (step.kind === 'emit') this.#emit(step, next, process);
      if (next.at >= next.exchange.steps.length && next.exchange.responseAt !== undefined) {
        this.#running.splice(this.#running.indexOf(next), 1);
      }
      if (this.paceMs > 0 && step.kind === 'emit') await new Promise((resolve) => setTimeout(resolve, this.paceMs));
    }
    this.#advancing = false;
    for (const stuck of this.#running.filter((entry) => entry.at >= entry.exchange.steps.length)) {
      // Never answered in the recording: a cancel ends it, as the protocol says.
      const wasCancelled = stuck.exchange.steps.some(({ kind }) => kind === 'cancel');
      if (!wasCancelled && !this.#takeCancel(stuck.exchange.sessionId)) continue;
      this.#running.splice(this.#running.indexOf(stuck), 1);
      const message = { jsonrpc: '2.0', id: stuck.request.id, result: { stopReason: 'cancelled' } } as Message;
      this.#write(process, JSON.stringify(message), message);
    }
  }

  #takeCancel(session: string | undefined): boolean {
    const found = this.#cancelled.indexOf(session ?? '');
    if (found >= 0) this.#cancelled.splice(found, 1);
    return found >= 0;
  }

  #next(): Running | undefined {
    let best: Running | undefined;
    for (const entry of this.#running) {
      const step = entry.exchange.steps[entry.at];
      if (!step) continue;
      const bestStep = best?.exchange.steps[best.at];
      if (!bestStep || step.index < bestStep.index) best = entry;
    }
    const step = best?.exchange.steps[best.at];
    if (!best || !step) return undefined;
    if (this.#mustWaitFor(step.index, best)) return undefined;
    if (step.kind === 'answer') return this.#answered.has(step.id) ? best : undefined;
    if (step.kind === 'cancel') return this.#takeCancel(best.exchange.sessionId) ? best : undefined;
    return best;
  }

  /** A prompt of another session that the recording had before this step is on its way: its words come in between. */
  #mustWaitFor(index: number, mine: Running): boolean {
    if (mine.exchange.method !== 'session/prompt') return false;
    return this.#unused.some(({ method, index: asked, sessionId, responseAt = 0 }) => {
      const overlaps = asked < index && responseAt > index && asked > mine.exchange.index;
      return method === 'session/prompt' && sessionId !== mine.exchange.sessionId && overlaps;
    });
  }

  #emit(step: Step & { kind: 'emit' }, entry: Running, process: AgentLife): void {
    const { message, text, index } = step;
    if (!isResponse(message)) {
      this.#write(process, text, message, index);
      return;
    }
    // The id is the asker's; the rest of the response is as recorded.
    const answer = withId(text, JSON.stringify(entry.request.id));
    this.#write(process, answer, JSON.parse(answer) as Message, index);
  }

  #write(process: AgentLife, text: string, message: Message, index?: number): void {
    this.happened.push({ dir: 'out', text, message, ...(index !== undefined && { index }) });
    process.line(text);
    for (const wake of this.#waiting.splice(0)) wake();
  }
}
