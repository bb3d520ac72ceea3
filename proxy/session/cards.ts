/**
 * Cards: an approval on the screens of the clients that are asked. Each is a request to one client; it is owed at the
 * approval's place in the order, or behind the response with which the client attached.
 */
import { type Position, comparePositions } from '../../protocol/event-id.ts';
import { type ResponseMessage, notificationText, requestText } from '../../protocol/json-rpc.ts';
import type { AgentRequest } from './agent-request.ts';
import type { Client } from './client.ts';
import { publicParams } from './public-params.ts';
import type { Session } from './session.ts';
import { withSidecarMeta } from '../../protocol/sidecar-meta.ts';

/** What a card says of its approval in `_meta.sidecar`. */
export interface CardFacts {
  readonly approvalId: string;
  readonly eventId: string;
  readonly reopened?: true;
  /** The answer that was recorded before the approval was asked again. */
  readonly previousOutcome?: unknown;
  /** Why the client's last answer was refused. */
  readonly refused?: string;
}

export class Cards {
  readonly #session: Session;
  readonly #requestIds = new Map<Client, string>();

  constructor(session: Session) {
    this.#session = session;
  }

  /** Asks one client. @param seq of the approval's event */
  ask(
    client: Client,
    request: AgentRequest,
    seq: number,
    facts: CardFacts,
    answered: (answer: ResponseMessage) => void,
  ): void {
    const attachment = this.#session.clients.get(client);
    if (!attachment) return;
    const requestId = client.expect((answer) => {
      if (answer === 'gone') return;
      this.#requestIds.delete(client);
      answered(answer);
    });
    this.#requestIds.set(client, requestId);
    const params = withSidecarMeta(publicParams(this.#session, client, request.paramsText), { ...facts });
    const at = later({ seq, offset: 0 }, attachment.attachedAt);
    attachment.owe({ ...at, what: 'card', wire: requestText(requestId, request.method, params), requestId });
    client.kick();
  }

  /** Takes a card off a screen: one that was not sent yet is dropped, else the client is told. */
  withdraw(client: Client): void {
    const requestId = this.#requestIds.get(client);
    if (requestId === undefined) return;
    this.#requestIds.delete(client);
    client.forget(requestId);
    const attachment = this.#session.clients.get(client);
    if (!attachment) return;
    const wire = notificationText('$/cancel_request', `{"requestId":${requestId}}`);
    attachment.withdrawCard(requestId, { ...this.#session.order.tip, what: 'answer', wire });
    client.kick();
  }

  /** The client is gone: its answer would be nobody's. */
  drop(client: Client): void {
    const requestId = this.#requestIds.get(client);
    if (requestId === undefined) return;
    this.#requestIds.delete(client);
    client.forget(requestId);
  }
}

function later(a: Position, b: Position): Position {
  return comparePositions(a, b) < 0 ? b : a;
}
