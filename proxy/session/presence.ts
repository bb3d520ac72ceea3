/** Presence: who is on the session, told to the clients that opted in whenever it changes. */
import { notificationText } from '../../protocol/json-rpc.ts';
import { stringifyWire } from '../../protocol/wire-text.ts';
import type { Client } from './client.ts';
import { driverOf, sameClient } from './same-client.ts';
import type { Session } from './session.ts';

export interface PresentClient {
  readonly clientId: string | undefined;
  readonly name: string | undefined;
  readonly role: 'controller' | 'observer';
  readonly driver: boolean;
}

export class Presence {
  readonly #session: Session;
  #due = false;
  #told = '';

  constructor(session: Session) {
    this.#session = session;
  }

  list(): PresentClient[] {
    const driver = driverOf(this.#session);
    return [...this.#session.clients].map(([client, attachment]) => ({
      clientId: client.clientId,
      name: client.name,
      role: attachment.observer ? 'observer' : client.role,
      driver: driver !== undefined && sameClient(client, driver),
    }));
  }

  /** Somebody came or went, or a turn began or ended. Told once for all that happens in one tick. */
  changed(): void {
    if (this.#due) return;
    this.#due = true;
    setImmediate(() => {
      this.#due = false;
      this.#tell();
    });
  }

  /** One that has just come is told, whatever the others have heard. */
  attached(): void {
    this.#told = '';
    this.changed();
  }

  #tell(): void {
    const { sessionId, order, clients } = this.#session;
    const wire = notificationText('_sidecar/clients', stringifyWire({ sessionId, clients: this.list() }));
    if (wire === this.#told) return;
    this.#told = wire;
    order.note((at) => {
      for (const [client, attachment] of clients) {
        if (!attachment.view.sidecar) continue;
        attachment.oweNewest('clients', { ...at, what: 'passing', wire });
        client.kick();
      }
    });
  }

  /** RFD #533: those that attached with `session/attach` hear who went. */
  left(gone: Client): void {
    const { sessionId, order, clients, logger } = this.#session;
    logger.debug({ clientId: gone.clientId }, 'client left');
    const update = {
      sessionUpdate: 'client_disconnected',
      clientId: clientKey(gone),
      name: gone.name,
      role: gone.role,
    };
    for (const [client, attachment] of clients) {
      if (!attachment.rfd) continue;
      const eventId = this.#session.eventId(order.tip);
      const wire = notificationText('session/update', stringifyWire({ sessionId, update, _meta: { eventId } }));
      attachment.owe({ ...order.tip, what: 'passing', wire });
      client.kick();
    }
    this.changed();
  }
}

/** How RFD #533 names a client: it always has an id. */
export function clientKey(client: Client): string {
  return client.clientId ?? `connection-${client.id}`;
}
