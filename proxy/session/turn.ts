/** One turn, from its prompt on; `Turns` moves it. */
import type { AgentPort } from './agent-port.ts';
import type { Client } from './client.ts';
import type { PromptInput } from './prompt-input.ts';

/** A request that waits for the turn's end: the first, or the same promptId sent again. */
export interface Requester {
  readonly client: Client;
  readonly requestId: string;
}

type Phase = 'queued' | 'binding' | 'starting' | 'running' | 'ending';

export interface Turn extends PromptInput {
  readonly turnId: string;
  phase: Phase;
  requesters: Requester[];
  cancelled: boolean;
  /** Seq of its `turn_queued`, once that is durable. */
  queuedSeq: number | undefined;
  agentRequestId: string | undefined;
  agent: AgentPort | undefined;
  /** Text of the prompt that an agent may still echo. */
  echo: string;
}

export function newTurn(input: PromptInput, turnId: string): Turn {
  const { client, requestId } = input;
  return {
    ...input,
    turnId,
    phase: 'queued',
    requesters: [{ client, requestId }],
    cancelled: false,
    queuedSeq: undefined,
    agentRequestId: undefined,
    agent: undefined,
    echo: '',
  };
}
