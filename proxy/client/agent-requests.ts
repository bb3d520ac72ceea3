/**
 * Requests of the agent to the local side. Each connection of the sidecar counts its ids anew, so the local side gets ids
 * of ours. A request that comes again after a cut is the same request: an approval by its approvalId, others by their
 * requestKey. It is shown once, and an answer that was lost with the connection is given again.
 *
 *   asked -> open -> answered (the answer is kept for a while) -> forgotten
 *              \-> withdrawn ($/cancel_request), also when it is not asked again after a cut
 */
import {
  type RequestMessage,
  type ResponseMessage,
  errorText,
  notificationText,
  paramsOf,
  responseText,
  withId,
} from '../../protocol/json-rpc.ts';
import { sidecarOf } from '../../protocol/sidecar-meta.ts';

interface Entry {
  readonly localId: string;
  /** Undefined: it cannot come again. */
  readonly key: string | undefined;
  readonly approvalId: string | undefined;
  /** Which asking of an approval this is: a reopened one is another. */
  readonly asking: string | undefined;
  readonly sessionId: string | undefined;
  /** Its id on the present connection. */
  remoteId: string | undefined;
  /** `result` or `error` of the answer, wire text. */
  answer: { readonly member: 'result' | 'error'; readonly text: string; readonly at: number } | undefined;
  /** The answer has gone out on the present connection. */
  told: boolean;
  withdrawn: boolean;
}

const KEPT_ANSWERS = 1000;
const KEPT_BYTES = 16 * 1024 * 1024;
const KEPT_MS = 600_000;

export interface AgentRequestsSink {
  local(wire: string): void;
  remote(wire: string): void;
}

export class AgentRequests {
  readonly #sink: AgentRequestsSink;
  readonly #byLocalId = new Map<string, Entry>();
  readonly #byKey = new Map<string, Entry>();
  readonly #byRemoteId = new Map<string, Entry>();
  #nextId = 1;
  #keptBytes = 0;

  constructor(sink: AgentRequestsSink) {
    this.#sink = sink;
  }

  /** Requests that the local side has not answered. */
  get open(): number {
    let open = 0;
    for (const entry of this.#byLocalId.values()) if (!entry.answer) open++;
    return open;
  }

  /** The sidecar asks, for the first time or again. */
  asked(message: RequestMessage): void {
    const { approvalId, requestKey, eventId } = sidecarOf(paramsOf(message));
    const approval = typeof approvalId === 'string' ? approvalId : undefined;
    const key = approval !== undefined ? `approval ${approval}` : textKey(requestKey);
    const asking = typeof eventId === 'string' ? eventId : undefined;
    const known = key === undefined ? undefined : this.#byKey.get(key);
    // A card that is still open stands for a reopened question too; an answer given to the earlier asking does not.
    if (known && !known.withdrawn && (!known.answer || (known.asking === asking && !known.told))) {
      this.#askedAgain(known, message.id);
      return;
    }
    if (known) this.#forget(known);
    const { sessionId } = paramsOf(message);
    const entry: Entry = {
      localId: String(this.#nextId++),
      key,
      approvalId: approval,
      asking,
      sessionId: typeof sessionId === 'string' ? sessionId : undefined,
      remoteId: message.id,
      answer: undefined,
      told: false,
      withdrawn: false,
    };
    this.#byLocalId.set(entry.localId, entry);
    this.#byRemoteId.set(message.id, entry);
    if (key !== undefined) this.#byKey.set(key, entry);
    this.#sink.local(withId(message, entry.localId));
  }

  /** The local side answers. False when it is not an answer to one of these. */
  answered(message: ResponseMessage, now: number): boolean {
    const entry = this.#byLocalId.get(message.id);
    if (!entry || entry.answer) return false;
    const span = message.result ?? message.error;
    const text = span ? message.wire.slice(span.valueStart, span.valueEnd) : 'null';
    entry.answer = { member: message.result ? 'result' : 'error', text, at: now };
    this.#tell(entry);
    if (entry.key === undefined || entry.withdrawn) this.#forget(entry);
    else {
      this.#keptBytes += text.length;
      this.#prune(now);
    }
    return true;
  }

  /**
   * The sidecar withdraws a request. While sessions are being resumed it does so to ask again at once: then the local side
   * is left alone.
   */
  withdrawnByRemote(remoteId: string, resuming: boolean): void {
    const entry = this.#byRemoteId.get(remoteId);
    if (!entry) return;
    if (resuming && entry.key !== undefined) {
      this.#byRemoteId.delete(remoteId);
      entry.remoteId = undefined;
    } else this.#withdraw(entry);
  }

  /** An approval was decided, or cannot be decided any more. */
  approvalClosed(approvalId: unknown): void {
    const entry = typeof approvalId === 'string' ? this.#byKey.get(`approval ${approvalId}`) : undefined;
    if (entry && !entry.answer && entry.remoteId === undefined) this.#withdraw(entry);
  }

  /** The connection is lost: what can come again waits for it, the rest is over. */
  lost(): void {
    this.#byRemoteId.clear();
    for (const entry of this.#byLocalId.values()) {
      entry.remoteId = undefined;
      entry.told = false;
      if (entry.key === undefined) this.#withdraw(entry);
    }
  }

  /** Sessions were resumed a while ago: what was not asked again is over. */
  withdrawOrphans(): void {
    for (const entry of this.#byLocalId.values()) {
      if (!entry.answer && entry.remoteId === undefined) this.#withdraw(entry);
    }
  }

  withdrawSession(sessionId: string): void {
    for (const entry of this.#byLocalId.values()) if (entry.sessionId === sessionId) this.#withdraw(entry);
  }

  #askedAgain(entry: Entry, remoteId: string): void {
    if (entry.remoteId !== undefined) this.#byRemoteId.delete(entry.remoteId);
    entry.remoteId = remoteId;
    this.#byRemoteId.set(remoteId, entry);
    if (entry.answer) this.#tell(entry);
  }

  #tell(entry: Entry): void {
    const { answer, remoteId } = entry;
    if (!answer || remoteId === undefined) return;
    entry.told = true;
    this.#byRemoteId.delete(remoteId);
    const { member, text } = answer;
    this.#sink.remote(member === 'result' ? responseText(remoteId, text) : errorText(remoteId, text));
  }

  #withdraw(entry: Entry): void {
    if (entry.answer || entry.withdrawn) return;
    entry.withdrawn = true;
    if (entry.remoteId !== undefined) this.#byRemoteId.delete(entry.remoteId);
    // The sidecar still gets the answer under its id, if there is one, and knows that it is late.
    if (entry.key !== undefined && this.#byKey.get(entry.key) === entry) this.#byKey.delete(entry.key);
    this.#sink.local(notificationText('$/cancel_request', `{"requestId":${entry.localId}}`));
  }

  #forget(entry: Entry): void {
    this.#byLocalId.delete(entry.localId);
    if (entry.remoteId !== undefined) this.#byRemoteId.delete(entry.remoteId);
    if (entry.key !== undefined && this.#byKey.get(entry.key) === entry) this.#byKey.delete(entry.key);
    if (entry.answer && entry.key !== undefined && !entry.withdrawn) this.#keptBytes -= entry.answer.text.length;
  }

  /** Answers are kept in the order of the questions; the oldest go first. */
  #prune(now: number): void {
    let kept = 0;
    for (const entry of this.#byLocalId.values()) if (entry.answer) kept++;
    for (const entry of this.#byLocalId.values()) {
      if (!entry.answer) continue;
      if (kept <= KEPT_ANSWERS && this.#keptBytes <= KEPT_BYTES && now - entry.answer.at <= KEPT_MS) break;
      this.#forget(entry);
      kept--;
    }
  }
}

function textKey(requestKey: unknown): string | undefined {
  return typeof requestKey === 'string' ? `request ${requestKey}` : undefined;
}
