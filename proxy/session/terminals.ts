/**
 * Terminals: each belongs to the client that created it, and only that client shows it. What it printed is fetched once,
 * when the agent releases it or its owner goes, and appended to the tool calls that show it; everybody else is sent text.
 *
 *   create -> live --release--> output fetched, appended -> released
 *               \--owner lost-> the last output that was seen, appended -> gone
 */
import { type RpcError, rpcError } from '../../protocol/error.ts';
import { type JsonObject, type ResponseMessage, isObject, requestText } from '../../protocol/json-rpc.ts';
import { items, parseWire, stringifyWire, valueAt } from '../../protocol/wire-text.ts';
import { SHOWN_TERMINALS_BYTES, boundHit } from '../bounds.ts';
import type { AgentRequest } from './agent-request.ts';
import type { Attachment, View } from './attachment.ts';
import type { Client } from './client.ts';
import { publicParams } from './public-params.ts';
import { sameClient } from './same-client.ts';
import type { Session } from './session.ts';

interface Terminal {
  owner: Client;
  /** The agent's id of the session that it was created in. */
  readonly sessionId: unknown;
  /** The last answer to `terminal/output` that was seen. */
  output: JsonObject | undefined;
  released: boolean;
  /** Released: those who show it and were not sent its output as text. */
  readonly shownTo: Set<Attachment>;
}

/** A tool call that shows terminals: its content as it was last said, wire text. */
interface Shown {
  readonly content: string;
  readonly childSessionId: string | undefined;
}

/** An owner that does not tell what a terminal printed does not hold up its release. */
const FETCH_MS = 5000;
/** Released terminals whose output is kept, should a tool call still come to show one. */
const MAX_RELEASED = 64;

export class Terminals {
  readonly #session: Session;
  readonly #terminals = new Map<string, Terminal>();
  /** By toolCallId, the longest unchanged first. */
  readonly #shown = new Map<string, Shown>();
  #shownBytes = 0;

  constructor(session: Session) {
    this.#session = session;
  }

  /** No terminal runs. */
  get idle(): boolean {
    return [...this.#terminals.values()].every(({ released }) => released);
  }

  /** The client of a live terminal. */
  ownerOf(terminalId: string): Client | undefined {
    const terminal = this.#terminals.get(terminalId);
    return terminal?.released ? undefined : terminal?.owner;
  }

  /**
   * Whether a client shows this terminal itself. One that was released before the call that shows it was sent: its owner
   * has it on the screen, and is not told what it printed.
   */
  isShownBy(view: View, terminalId: string): boolean {
    const terminal = this.#terminals.get(terminalId);
    if (!terminal) return false;
    const { owner, released, shownTo } = terminal;
    if (released) return [...shownTo].some((attachment) => attachment.view === view);
    return owner === view || (owner.identity !== undefined && owner.identity === view.identity);
  }

  /** The attachment begins its view anew, or is gone. */
  forget(attachment: Attachment): void {
    for (const { shownTo } of this.#terminals.values()) shownTo.delete(attachment);
  }

  /** Takes note of an answer to the agent. An error: the agent gets that instead. */
  answered(request: AgentRequest, client: Client, answer: ResponseMessage): RpcError | undefined {
    const result = answer.value['result'];
    const { terminalId } = request.params;
    if (request.method === 'terminal/create' && isObject(result) && typeof result['terminalId'] === 'string') {
      return this.#created(result['terminalId'], client, request.params['sessionId']);
    }
    if (typeof terminalId !== 'string') return undefined;
    const terminal = this.#terminals.get(terminalId);
    if (terminal && request.method === 'terminal/output' && isObject(result)) terminal.output = result;
    return undefined;
  }

  /** A tool call's update: which terminals does it show? @param update wire text */
  toolUpdate(toolCallId: string, update: string, childSessionId: string | undefined): void {
    const showing = update.includes('"terminal"');
    if (!showing && !this.#shown.has(toolCallId)) return;
    const content = valueAt(update, ['content']);
    if (content === undefined || content === 'null') return;
    const ids = terminalIds(content);
    // One that no client made will not print anything that we hear of.
    if (!ids.some((id) => this.#terminals.has(id))) {
      this.#show(toolCallId, undefined);
      return;
    }
    this.#show(toolCallId, { content, childSessionId });
    // The agent shows what it has released already: the text follows at once.
    if (ids.some((id) => this.#terminals.get(id)?.released)) setImmediate(() => this.#append(toolCallId));
  }

  /** Asks for what a terminal printed before its owner forgets it; `done` is called in any case. */
  fetch(terminalId: string, done: () => void): void {
    const terminal = this.#terminals.get(terminalId);
    if (!terminal?.owner.open) {
      this.#release(terminalId);
      done();
      return;
    }
    const { owner } = terminal;
    let over = false;
    const end = (): void => {
      if (over) return;
      over = true;
      clearTimeout(timer);
      this.#release(terminalId);
      done();
    };
    const requestId = owner.expect((answer) => {
      const result = answer === 'gone' ? undefined : answer.value['result'];
      if (isObject(result)) terminal.output = result;
      end();
    });
    const timer = setTimeout(() => {
      owner.forget(requestId);
      end();
    }, FETCH_MS);
    const params = stringifyWire({ sessionId: terminal.sessionId, terminalId });
    owner.send(requestText(requestId, 'terminal/output', publicParams(this.#session, owner, params)));
    owner.kick();
  }

  clientBack(client: Client): void {
    for (const terminal of this.#terminals.values()) if (sameClient(terminal.owner, client)) terminal.owner = client;
  }

  /** Its owner has left or is not coming back. One that can still be reached is asked, else what was seen last is all. */
  ownerLost(client: Client): void {
    for (const [terminalId, terminal] of this.#terminals) {
      if (sameClient(terminal.owner, client) && !terminal.released) this.fetch(terminalId, () => undefined);
    }
  }

  agentExited(): void {
    for (const [terminalId, { released }] of this.#terminals) if (!released) this.#release(terminalId);
    // Nothing more will show them, but calls that do may still be on their way to their owners.
    for (const terminal of this.#terminals.values()) terminal.output = undefined;
    this.#shown.clear();
    this.#shownBytes = 0;
  }

  #show(toolCallId: string, shown: Shown | undefined): void {
    this.#shownBytes -= this.#shown.get(toolCallId)?.content.length ?? 0;
    this.#shown.delete(toolCallId);
    if (shown === undefined) return;
    this.#shown.set(toolCallId, shown);
    this.#shownBytes += shown.content.length;
    for (const oldest of this.#shown.keys()) {
      if (this.#shownBytes <= SHOWN_TERMINALS_BYTES || oldest === toolCallId) break;
      boundHit('shown_terminals');
      this.#show(oldest, undefined);
    }
  }

  #created(terminalId: string, client: Client, sessionId: unknown): RpcError | undefined {
    const known = this.#terminals.get(terminalId);
    if (known && !known.released && !sameClient(known.owner, client)) {
      return rpcError('invalid_params', 'the client used the id of another client’s live terminal');
    }
    this.#terminals.delete(terminalId);
    this.#terminals.set(terminalId, {
      owner: client,
      sessionId,
      output: undefined,
      released: false,
      shownTo: new Set(),
    });
    return undefined;
  }

  #release(terminalId: string): void {
    const terminal = this.#terminals.get(terminalId);
    if (!terminal) return;
    terminal.released = true;
    for (const [toolCallId, { content }] of this.#shown) {
      if (terminalIds(content).includes(terminalId)) this.#append(toolCallId);
    }
    let released = 0;
    for (const entry of this.#terminals.values()) if (entry.released) released++;
    for (const [id, entry] of this.#terminals) {
      if (released <= MAX_RELEASED) break;
      if (!entry.released) continue;
      this.#terminals.delete(id);
      released--;
    }
  }

  /** Writes the tool call's content with what its released terminals printed in their places. */
  #append(toolCallId: string): void {
    const shown = this.#shown.get(toolCallId);
    if (!shown) return;
    const ended: Terminal[] = [];
    const content = replaceTerminals(shown.content, (terminalId) => {
      const terminal = this.#terminals.get(terminalId);
      if (!terminal?.released) return undefined;
      ended.push(terminal);
      return outputText(terminal.output);
    });
    if (content === shown.content) return;
    this.#show(toolCallId, terminalIds(content).length === 0 ? undefined : { ...shown, content });
    const wire = `{"sessionUpdate":"tool_call_update","toolCallId":${stringifyWire(toolCallId)},"content":${content},"_meta":{"sidecar":{"terminal":true}}}`;
    // Its owner goes on showing the terminal itself.
    const seen = new Set<Attachment>();
    for (const [client, attachment] of this.#session.clients) {
      for (const { owner, shownTo } of ended) {
        if (!sameClient(owner, client)) continue;
        seen.add(attachment);
        shownTo.add(attachment);
      }
    }
    this.#session.intake.ownUpdate(wire, toolCallId, shown.childSessionId, seen);
  }
}

/** The text of an answer to `terminal/output`. */
function outputText(output: JsonObject | undefined): string {
  if (!output) return '[The terminal’s client left before it told what was printed.]';
  const text = typeof output['output'] === 'string' ? output['output'] : '';
  const status = isObject(output['exitStatus']) ? output['exitStatus'] : {};
  const head = output['truncated'] === true ? '[The beginning is cut off.]\n' : '';
  const end = text === '' || text.endsWith('\n') ? '' : '\n';
  if (typeof status['signal'] === 'string') return `${head}${text}${end}[ended by ${status['signal']}]`;
  const { exitCode } = status;
  return typeof exitCode === 'number' && exitCode !== 0 ? `${head}${text}${end}[exit code ${exitCode}]` : head + text;
}

/** The terminals that a `content` array shows. */
export function terminalIds(content: string): string[] {
  return items(content).flatMap(([start, end]) => terminalIdOf(content.slice(start, end)) ?? []);
}

/** A `content` array with text in the place of terminals; `text` gives undefined for those that stay. */
export function replaceTerminals(content: string, text: (terminalId: string) => string | undefined): string {
  let out = '';
  let at = 0;
  for (const [start, end] of items(content)) {
    const terminalId = terminalIdOf(content.slice(start, end));
    const instead = terminalId === undefined ? undefined : text(terminalId);
    if (instead === undefined) continue;
    const block = stringifyWire({ type: 'content', content: { type: 'text', text: instead } });
    out += content.slice(at, start) + block;
    at = end;
  }
  return out + content.slice(at);
}

function terminalIdOf(item: string): string | undefined {
  if (!item.includes('"terminal"')) return undefined;
  const value = parseWire(item);
  if (!isObject(value) || value['type'] !== 'terminal') return undefined;
  return typeof value['terminalId'] === 'string' ? value['terminalId'] : undefined;
}
