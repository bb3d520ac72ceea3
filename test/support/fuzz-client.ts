import type { JsonObject } from '../../protocol/json-rpc.ts';
import { at, isResponse, type Message, type Received, textAt, updateOf } from './json.ts';
import { RawClient } from './raw-client.ts';
import { isCard } from './room.ts';
import { Scope } from './scope.ts';
import type { Sidecar } from './sidecar.ts';
import { promptChunks, type Told } from './story.ts';

/**
 * A client that drops and comes back: what it was told is kept over its connections, as a person's screen would. Its own
 * prompts stand where their turns began, unless a replay has shown them.
 */
export class FuzzClient {
  readonly clientId: string;
  readonly told: Told[] = [];
  /** Cards on the screen, by approvalId. */
  readonly cards = new Map<string, Message>();
  /** Prompts that have no answer yet, by promptId. */
  readonly waiting = new Map<string, object>();
  readonly answers = new Map<string, Message[]>();
  /** Approvals that it was told are over, how often. */
  readonly resolved = new Map<string, number>();
  readonly ownPrompts = new Map<string, readonly unknown[]>();
  /** More than one live card for one approval, or a cursor that went back: what must never be. */
  readonly faults: string[] = [];
  connection: RawClient | undefined;
  readonly #sidecar: Sidecar;
  readonly #sessionId: string;
  readonly #scope: Scope;
  readonly #shownTurns = new Set<string>();
  readonly #byRequest = new Map<unknown, string>();
  #cursor: string | undefined;
  #lastSeq = 0;
  #next = 0;

  constructor(sidecar: Sidecar, scope: Scope, clientId: string, sessionId: string, cursor: string) {
    this.#sidecar = sidecar;
    this.#scope = scope;
    this.clientId = clientId;
    this.#sessionId = sessionId;
    this.#cursor = cursor;
  }

  async connect(): Promise<void> {
    const client = this.clientId.endsWith('1')
      ? await this.#sidecar.webSocket(this.#scope)
      : await this.#sidecar.unix(this.#scope);
    await client.initialize({ sidecar: { clientId: this.clientId } });
    this.cards.clear();
    this.#byRequest.clear();
    client.onReceived = (received) => this.#received(received);
    this.connection = client;
    const result = await client.resume(this.#sessionId, this.#cursor);
    const mode = at(result, '_meta', 'sidecar', 'mode');
    if (mode !== 'tail') this.faults.push(`resumed with ${String(mode)}`);
    for (const [promptId, params] of this.waiting) this.#send(promptId, params);
  }

  drop(): void {
    this.connection?.cut();
    this.connection = undefined;
    this.cards.clear();
  }

  prompt(text: string): void {
    const promptId = `${this.clientId}-${this.#next++}`;
    const prompt = [{ type: 'text', text }];
    this.ownPrompts.set(promptId, prompt);
    const params = { sessionId: this.#sessionId, prompt, _meta: { sidecar: { promptId } } };
    this.waiting.set(promptId, params);
    this.#send(promptId, params);
  }

  /** Cards to answer. One whose approval is over is left: it has to go by itself. */
  openCards(): string[] {
    return [...this.cards.keys()].filter((approvalId) => !this.resolved.has(approvalId));
  }

  answer(approvalId: string, result: object): void {
    const card = this.cards.get(approvalId);
    this.cards.delete(approvalId);
    if (card) this.connection?.sendMessage({ id: card.id, ...result });
  }

  #send(promptId: string, params: object): void {
    const id = `prompt ${promptId} ${this.#next++}`;
    this.#byRequest.set(id, promptId);
    this.connection?.sendMessage({ id, method: 'session/prompt', params });
  }

  #received({ message }: Received): void {
    const params: JsonObject = message.params ?? {};
    this.#follow(message);
    if (isResponse(message)) this.#answered(message);
    else if (isCard(message)) {
      const approvalId = textAt(params, '_meta', 'sidecar', 'approvalId');
      if (this.cards.has(approvalId)) this.faults.push(`two live cards for ${approvalId}`);
      this.cards.set(approvalId, message);
    } else if (message.method === '$/cancel_request') {
      for (const [approvalId, card] of this.cards) if (card.id === params['requestId']) this.cards.delete(approvalId);
    } else if (message.method === '_sidecar/approval') this.#approval(params);
    else if (message.method === '_sidecar/turn' && params['state'] === 'running') this.#running(params);
    else this.#update(message);
  }

  #update(message: Message): void {
    const update = updateOf(message);
    if (!update) return;
    if (update['sessionUpdate'] === 'user_message_chunk') this.#shownTurns.add(String(update['messageId']));
    this.told.push(update);
  }

  #running(params: JsonObject): void {
    const turnId = String(params['turnId']);
    const prompt = this.ownPrompts.get(String(params['promptId']));
    if (prompt && !this.#shownTurns.has(turnId)) this.told.push(...promptChunks(prompt, turnId));
    this.#shownTurns.add(turnId);
  }

  #approval(params: JsonObject): void {
    const approvalId = String(params['approvalId']);
    if (params['state'] !== 'resolved' && params['state'] !== 'cancelled') return;
    this.resolved.set(approvalId, (this.resolved.get(approvalId) ?? 0) + 1);
  }

  #answered(message: Message): void {
    const promptId = this.#byRequest.get(message.id);
    if (promptId === undefined) return;
    this.waiting.delete(promptId);
    this.answers.set(promptId, [...(this.answers.get(promptId) ?? []), message]);
  }

  /** The cursor of what has been applied; durable ones never go back. */
  #follow(message: Message): void {
    const eventId =
      at(message, 'params', '_meta', 'eventId') ??
      at(message, 'result', '_meta', 'sidecar', 'eventId') ??
      (message.method?.startsWith('_sidecar/') ? at(message, 'params', 'eventId') : undefined);
    if (typeof eventId !== 'string') return;
    const seq = Number(/-(\d+)/.exec(eventId)?.[1]);
    const old = isResponse(message) && this.#byRequest.has(message.id);
    if (seq < this.#lastSeq && !old) this.faults.push(`${eventId} after event ${this.#lastSeq}`);
    this.#lastSeq = Math.max(this.#lastSeq, seq);
    // The answer to an old promptId names its own turn's end.
    if (!old) this.#cursor = eventId;
  }
}
