/** What a session sees of a connection: who it is, what it can, and how to reach it. */
import type { ResponseMessage } from '../../protocol/json-rpc.ts';
import type { View } from './attachment.ts';

export type AnswerHandler = (answer: ResponseMessage | 'gone') => void;

export interface Client extends View {
  readonly id: number;
  readonly role: 'controller' | 'observer';
  readonly name: string | undefined;
  readonly capabilities: unknown;
  /** Counts up with everything the client sends: the most recently active has the greatest. */
  readonly lastActive: number;
  readonly open: boolean;
  /** Sends a message ahead of whatever its sessions owe it. */
  send(wire: string): void;
  /**
   * Reserves an id for a request to this client. `handler` gets its answer, or `gone` when the connection ends. The
   * caller sends the request.
   */
  expect(handler: AnswerHandler): string;
  /** Gives up a reserved id: its answer is dropped. */
  forget(id: string): void;
  /** Takes it off a session. */
  detach(session: unknown): void;
  /** There is something to pump. */
  kick(): void;
}
