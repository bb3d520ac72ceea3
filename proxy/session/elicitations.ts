/**
 * Who was sent to which page: `elicitation/complete` of the url mode goes to that client, and is kept until it attaches
 * again when it is away.
 */
import { notificationText } from '../../protocol/json-rpc.ts';
import type { Client } from './client.ts';
import { sameClient } from './same-client.ts';
import type { Session } from './session.ts';

/** Pages that may still be completed; the oldest goes first. */
const MAX_OPEN = 1000;

export class Elicitations {
  readonly #session: Session;
  readonly #sentTo = new Map<string, Client>();
  #waiting: { readonly client: Client; readonly wire: string }[] = [];

  constructor(session: Session) {
    this.#session = session;
  }

  /** No completion waits for its client. */
  get idle(): boolean {
    return this.#waiting.length === 0;
  }

  sent(elicitationId: unknown, client: Client): void {
    if (typeof elicitationId !== 'string') return;
    this.#sentTo.delete(elicitationId);
    this.#sentTo.set(elicitationId, client);
    for (const oldest of this.#sentTo.keys()) {
      if (this.#sentTo.size <= MAX_OPEN) break;
      this.#sentTo.delete(oldest);
    }
  }

  /** False when the page is not one of this session. @param params wire text */
  complete(elicitationId: string, params: string): boolean {
    const client = this.#sentTo.get(elicitationId);
    if (!client) return false;
    this.#sentTo.delete(elicitationId);
    const wire = notificationText('elicitation/complete', params);
    const present = [...this.#session.clients.keys()].find((other) => sameClient(other, client));
    if (present) this.#owe(present, wire);
    else if (client.identity !== undefined) this.#waiting.push({ client, wire });
    return true;
  }

  attached(client: Client): void {
    if (this.#waiting.length === 0) return;
    const mine = this.#waiting.filter((entry) => sameClient(entry.client, client));
    this.#waiting = this.#waiting.filter((entry) => !mine.includes(entry));
    for (const { wire } of mine) this.#owe(client, wire);
  }

  #owe(client: Client, wire: string): void {
    this.#session.clients.get(client)?.owe({ ...this.#session.order.tip, what: 'answer', wire });
    client.kick();
  }
}
