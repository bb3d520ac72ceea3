/**
 * Brings one session back on a new connection. Children that were loaded by their ids are named first, without a cursor;
 * what they have said since comes with the rest, from the cursor that they share with their parent.
 *
 *   cursor --tail--> done
 *     | mode none, reason diverged: a crash lost the end of the text that was streaming
 *     |    -> one visible line, then from the last settled position --tail--> done
 *     | any other reason (foreign, ahead, expired)
 *     |    -> one visible line, then `session/load` of everything --full--> done
 *     |       (foreign, ahead: a prompt that had gone out and is not in this log is over, for it may have run)
 *     | error: the session is gone -> one visible line
 */
import { type ResponseMessage, isObject } from '../../protocol/json-rpc.ts';
import { type TrackedSession, advance, advanceForward, resumeParams, settledCursor } from './session-book.ts';
import { sidecarOf } from '../../protocol/sidecar-meta.ts';
import { goneText, lostText, replayText, visibleLine } from './visible-line.ts';

export interface ResumerSink {
  ask(session: TrackedSession, method: 'session/resume' | 'session/load', params: string): void;
  /** Asks for a child to be shown. Its answer says nothing. */
  askChild(params: string): void;
  /** A message for the local side. */
  show(wire: string): void;
  /** The session cannot be continued. */
  gone(sessionId: string): void;
  /** All that its log has was handed on, and it is not the log that the session had before. */
  replaced(sessionId: string): void;
  newId(): string;
}

export class SessionResumer {
  readonly #sink: ResumerSink;

  constructor(sink: ResumerSink) {
    this.#sink = sink;
  }

  begin(session: TrackedSession): void {
    session.resuming = 'cursor';
    for (const child of session.children) {
      // That puts the connection at the tip of the session, behind a hole.
      session.skipping = true;
      this.#sink.askChild(resumeParams(session, undefined, child));
    }
    this.#sink.ask(session, 'session/resume', resumeParams(session, session.cursor));
  }

  answered(session: TrackedSession, message: ResponseMessage): void {
    const result = message.value['result'];
    if (!message.result) {
      const error = message.value['error'];
      this.#show(session, goneText(isObject(error) ? String(error['message']) : 'it was refused'));
      session.resuming = 'no';
      session.skipping = false;
      this.#sink.gone(session.sessionId);
      return;
    }
    const { mode, reason, eventId } = sidecarOf(result);
    if (mode === 'none' && session.cursor !== undefined && reason !== 'no_cursor') {
      this.#elsewhere(session, typeof reason === 'string' ? reason : 'unknown');
      return;
    }
    if (session.resuming === 'replaced') this.#sink.replaced(session.sessionId);
    session.resuming = 'no';
    session.skipping = false;
    if (typeof eventId === 'string') advanceForward(session, eventId);
  }

  /** The cursor cannot be used: the connection stands at the tip, behind a hole, and shows nothing until it is filled. */
  #elsewhere(session: TrackedSession, reason: string): void {
    session.skipping = true;
    const settled = session.cursor === undefined ? undefined : settledCursor(session.cursor);
    if (reason === 'diverged' && session.resuming === 'cursor' && settled !== undefined) {
      session.resuming = 'settled';
      if (session.run.characters > 0) this.#show(session, lostText(session.run.characters));
      advance(session, settled);
      this.#sink.ask(session, 'session/resume', resumeParams(session, settled));
      return;
    }
    session.resuming = reason === 'foreign' || reason === 'ahead' ? 'replaced' : 'full';
    this.#show(session, replayText(reason));
    session.cursor = undefined;
    this.#sink.ask(session, 'session/load', resumeParams(session, undefined));
  }

  #show(session: TrackedSession, text: string): void {
    this.#sink.show(visibleLine(session.sessionId, text, this.#sink.newId()));
  }
}
