/**
 * Plays the agent's side of a trace. What the agent wrote is written again, in the recorded order; before each piece it
 * waits for what the agent had been sent by then.
 *
 *   recorded:   > initialize  < result  > session/new  < result  > session/prompt  < update  < update  < result
 *   played:     (wait)        write     (wait)         write     (wait)            write     write     write
 *
 * Requests get the ids under which they come now. A prompt is known by its method and session, not by its words. A
 * request of a method that does not come again in the trace is answered with an error.
 */
import { type Message, errorText, parseMessage, paramsOf, withId } from '../../protocol/json-rpc.ts';
import { rpcError } from '../../protocol/error.ts';
import { stringifyWire } from '../../protocol/wire-text.ts';
import type { TraceLine } from './read-trace.ts';

type Parsed = Exclude<Message, { kind: 'invalid' }>;

interface Step {
  readonly time: number;
  readonly from: 'agent' | 'sidecar';
  readonly wire: string;
  readonly message: Parsed;
}

export interface ReplayOptions {
  /** Writes a message to stdout, wire text without a line end; resolves when there is room for more. */
  readonly write: (wire: string) => Promise<void>;
  /** For people: what it waits for. */
  readonly note: (text: string) => void;
  /** Keeps the pauses of the recording; resolves after `ms`. Undefined: plays as fast as it goes. */
  readonly pause?: (ms: number) => Promise<void>;
}

export class AgentReplay {
  readonly #options: ReplayOptions;
  readonly #steps: readonly Step[];
  readonly #arrived: Parsed[] = [];
  /** The id that a recorded request of the sidecar has now. */
  readonly #ids = new Map<string, string>();
  #at = 0;
  #playing = false;
  #noted = -1;

  /** @param life which process of the agent, from 1 */
  constructor(trace: readonly TraceLine[], life: number, options: ReplayOptions) {
    this.#options = options;
    this.#steps = trace.flatMap(({ peer, id, to, wire, time }): Step[] => {
      if (peer !== 'agent' || id !== life || wire === undefined) return [];
      const message = parseMessage(wire);
      return message.kind === 'invalid' ? [] : [{ time, from: to === 'agent' ? 'sidecar' : 'agent', wire, message }];
    });
  }

  get length(): number {
    return this.#steps.length;
  }

  get done(): boolean {
    return this.#at >= this.#steps.length;
  }

  /** A message from the sidecar. Resolves when everything that it set off has been written. */
  async receive(wire: string): Promise<void> {
    const message = parseMessage(wire);
    if (message.kind === 'invalid') return;
    if (message.kind === 'request' && !this.#comesAgain(message)) {
      const error = rpcError('method_not_found', `${message.method} is not in the rest of this trace`);
      await this.#options.write(errorText(message.id, stringifyWire(error)));
      return;
    }
    this.#arrived.push(message);
    await this.play();
  }

  /** Writes all that can be written now. */
  async play(): Promise<void> {
    if (this.#playing) return;
    this.#playing = true;
    for (let step = this.#steps[this.#at]; step; step = this.#steps[this.#at]) {
      if (step.from === 'sidecar' && !this.#take(step)) {
        this.#noteWaiting(step.message);
        break;
      }
      this.#at++;
      if (step.from === 'agent') await this.#write(step);
    }
    this.#playing = false;
  }

  async #write(step: Step): Promise<void> {
    const { pause, write } = this.#options;
    if (pause) await pause(step.time - (this.#steps[this.#at - 2]?.time ?? step.time));
    const { message, wire } = step;
    if (message.kind !== 'response') await write(wire);
    else {
      const id = this.#ids.get(message.id);
      // An answer to something that the trace no longer has.
      if (id !== undefined) await write(withId(message, id));
    }
  }

  #take({ message }: Step): boolean {
    const at = this.#arrived.findIndex((arrived) => fits(message, arrived));
    const [arrived] = at < 0 ? [] : this.#arrived.splice(at, 1);
    if (!arrived) return false;
    if (message.kind === 'request' && arrived.kind === 'request') this.#ids.set(message.id, arrived.id);
    return true;
  }

  #comesAgain(request: Parsed): boolean {
    const waiting = this.#arrived.filter((other) => fits(other, request)).length;
    const left = this.#steps
      .slice(this.#at)
      .filter(({ from, message }) => from === 'sidecar' && fits(message, request));
    return left.length > waiting;
  }

  #noteWaiting(message: Parsed): void {
    if (this.#noted === this.#at) return;
    this.#noted = this.#at;
    const what = message.kind === 'response' ? `the answer to ${message.id}` : message.method;
    this.#options.note(`step ${this.#at + 1} of ${this.#steps.length}: waits for ${what}`);
  }
}

/** Whether a message is the one that was recorded. */
function fits(recorded: Parsed, now: Parsed): boolean {
  if (recorded.kind === 'response' || now.kind === 'response') {
    return recorded.kind === 'response' && now.kind === 'response' && recorded.id === now.id;
  }
  if (recorded.kind !== now.kind || recorded.method !== now.method) return false;
  return paramsOf(recorded)['sessionId'] === paramsOf(now)['sessionId'];
}
