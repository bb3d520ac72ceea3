/**
 * Requests of the local side that are not answered yet. Each is kept as it was sent, with a key that makes it safe to
 * send again: a prompt its `promptId`, others a `requestKey`. Requests that attach go again with the cursor instead.
 */
import { type RequestMessage, type ResponseMessage, isObject, paramsOf } from '../../protocol/json-rpc.ts';
import { valueAt } from '../../protocol/wire-text.ts';
import { withParams, withSidecarMembers, sidecarOf } from '../../protocol/sidecar-meta.ts';

export interface PendingRequest {
  readonly id: string;
  readonly method: string;
  readonly sessionId: string | undefined;
  /** The message as it goes out, wire text. */
  wire: string;
  promptId: string | undefined;
  /** Of a prompt: its id is ours, not the local side's. */
  readonly ownPromptId: boolean;
  /** Of a prompt: the turn that it became. */
  turnId: string | undefined;
  /** It has gone out on the present connection. */
  sent: boolean;
  /** It has gone out before, on a connection that is lost. */
  again: boolean;
  /** Of an attach: its replay has begun, so that the cursor stands in it. */
  replayBegan: boolean;
  /** The local side cancelled it; the cancel may have been lost. */
  cancelled: boolean;
  /** Of a prompt: the log that took the place of the session's own has it. */
  recorded: boolean;
}

/** Attaching is done again on each connection, so it must not be answered from memory. */
const WITHOUT_KEY = new Set(['initialize', 'session/load', 'session/resume', 'session/attach', '_sidecar/ping']);

export class PendingRequests {
  readonly #byId = new Map<string, PendingRequest>();
  #bytes = 0;

  get bytes(): number {
    return this.#bytes;
  }

  get all(): IterableIterator<PendingRequest> {
    return this.#byId.values();
  }

  get(id: string): PendingRequest | undefined {
    return this.#byId.get(id);
  }

  /** Keeps a request. @param wire the message, when it is not sent as it came */
  add(message: RequestMessage, newId: () => string, wire = message.wire): PendingRequest {
    const { method, id } = message;
    const params = paramsOf(message);
    const given = sidecarOf(params);
    const { sessionId } = params;
    let out = wire;
    let promptId: string | undefined;
    if (method === 'session/prompt') {
      promptId = typeof given['promptId'] === 'string' ? given['promptId'] : newId();
      if (given['promptId'] === undefined) out = withKey(message, { promptId });
    } else if (!WITHOUT_KEY.has(method) && given['requestKey'] === undefined) {
      out = withKey(message, { requestKey: newId() });
    }
    const request: PendingRequest = {
      id,
      method,
      sessionId: typeof sessionId === 'string' ? sessionId : undefined,
      wire: out,
      promptId,
      ownPromptId: method === 'session/prompt' && given['promptId'] === undefined,
      turnId: undefined,
      sent: false,
      again: false,
      replayBegan: false,
      cancelled: false,
      recorded: false,
    };
    this.#drop(id);
    this.#byId.set(id, request);
    this.#bytes += out.length;
    return request;
  }

  /** Answered: it is forgotten. */
  take(id: string): PendingRequest | undefined {
    const request = this.#byId.get(id);
    this.#drop(id);
    return request;
  }

  takeAll(): PendingRequest[] {
    const all = [...this.#byId.values()];
    this.#byId.clear();
    this.#bytes = 0;
    return all;
  }

  /** The connection is lost: what has gone out has to go again. */
  lost(): void {
    for (const request of this.#byId.values()) {
      if (request.sent) request.again = true;
      request.sent = false;
    }
  }

  /** The local side's own load or resume of a session. */
  attachOf(sessionId: string): PendingRequest | undefined {
    for (const request of this.#byId.values()) {
      if (request.sessionId === sessionId && isAttach(request.method)) return request;
    }
    return undefined;
  }

  prompt(promptId: unknown): PendingRequest | undefined {
    if (typeof promptId !== 'string') return undefined;
    for (const request of this.#byId.values()) if (request.promptId === promptId) return request;
    return undefined;
  }

  /**
   * The log says that a prompt never reached the agent: it may run, under a new id. False when the id is the local side's,
   * which is told and decides itself.
   */
  renew(request: PendingRequest, newId: () => string): boolean {
    if (!request.ownPromptId) return false;
    const promptId = newId();
    request.wire = withParams(request.wire, withSidecarMembers(paramsText(request), { promptId }));
    request.promptId = promptId;
    request.turnId = undefined;
    request.again = false;
    return true;
  }

  /**
   * A prompt that goes out again although it was answered: the end of a sidecar kept it from the agent. When that one is
   * still leaving (`isStopping`) the next one gets it.
   */
  keptOn(message: ResponseMessage, newId: () => string): PendingRequest | undefined {
    const prompt = this.#byId.get(message.id);
    if (prompt?.promptId === undefined) return undefined;
    if (isStopping(message)) return prompt;
    if (!prompt.again || !isNotSent(message.value['error']) || !this.renew(prompt, newId)) return undefined;
    prompt.sent = false;
    return prompt;
  }

  byTurn(turnId: unknown): PendingRequest | undefined {
    if (typeof turnId !== 'string') return undefined;
    for (const request of this.#byId.values()) if (request.turnId === turnId) return request;
    return undefined;
  }

  /** Takes the prompts of a session that have gone out on a connection that is lost, and that its log does not have. */
  takeUnrecorded(sessionId: string): PendingRequest[] {
    const found = [...this.#byId.values()].filter(
      (request) =>
        request.sessionId === sessionId && request.promptId !== undefined && request.again && !request.recorded,
    );
    for (const { id } of found) this.#drop(id);
    return found;
  }

  /** Marks what a cancel covers, to be cancelled again with it. False when it covers nothing here. */
  cancel(covers: (request: PendingRequest) => boolean): boolean {
    const covered = [...this.#byId.values()].filter(covers);
    for (const request of covered) request.cancelled = true;
    return covered.length > 0;
  }

  largest(): PendingRequest | undefined {
    let found: PendingRequest | undefined;
    for (const request of this.#byId.values()) if (!found || request.wire.length > found.wire.length) found = request;
    return found;
  }

  #drop(id: string): void {
    const known = this.#byId.get(id);
    if (!known) return;
    this.#byId.delete(id);
    this.#bytes -= known.wire.length;
  }
}

export function isAttach(method: string): boolean {
  return method === 'session/load' || method === 'session/resume' || method === 'session/attach';
}

/** A prompt that the sidecar, which is leaving, does not send to the agent: the connection ends soon. */
export function isStopping(message: ResponseMessage): boolean {
  const error = message.value['error'];
  const data = isObject(error) ? error['data'] : undefined;
  return isObject(data) && data['reason'] === 'stopping';
}

/** The end of a prompt that the agent never had. */
export function isNotSent(error: unknown): boolean {
  const data = isObject(error) ? (error['data'] ?? error) : undefined;
  return isObject(data) && data['kind'] === 'interrupted' && data['code'] === 'PROMPT_NOT_SENT';
}

/** The params as they go out, wire text. */
export function paramsText(request: PendingRequest): string {
  return valueAt(request.wire, ['params']) ?? '{}';
}

function withKey(message: RequestMessage, key: Readonly<Record<string, string>>): string {
  const value = message.value['params'];
  if (value !== undefined && !isObject(value)) return message.wire;
  const params = message.params ? message.wire.slice(message.params.valueStart, message.params.valueEnd) : '{}';
  return withParams(message.wire, withSidecarMembers(params, key));
}
