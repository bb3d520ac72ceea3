/**
 * Who is who. A client is its clientId, bound to its token, if it gave one, else its connection: a new connection with
 * the same identity is the same client.
 */
import type { Client } from './client.ts';
import type { Session } from './session.ts';

export function sameClient(a: Client, b: Client): boolean {
  return a === b || (a.identity !== undefined && a.identity === b.identity);
}

/** The client whose prompt runs, also while it is away. */
export function driverOf(session: Session): Client | undefined {
  return session.turns.current?.client;
}

/** Attached clients that may act on the session: the driver first, then the most recently active. */
export function controllersOf(session: Session): Client[] {
  const driver = driverOf(session);
  const rank = (client: Client): number => (driver && sameClient(client, driver) ? Infinity : client.lastActive);
  const found: Client[] = [];
  for (const [client, attachment] of session.clients) {
    if (client.open && client.role === 'controller' && !attachment.observer) found.push(client);
  }
  return found.sort((a, b) => rank(b) - rank(a));
}
