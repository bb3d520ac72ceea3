/** What a session sees of the agent. */
import type { ResponseMessage } from '../../protocol/json-rpc.ts';
import type { RpcError } from '../../protocol/error.ts';

/** How a request to the agent ended: its answer, or why there is none. */
export type AgentAnswer =
  | { readonly outcome: 'answered'; readonly message: ResponseMessage }
  /** The agent is gone; the request may have reached it. `error` tells what to say. */
  | { readonly outcome: 'lost'; readonly message: string };

export interface AgentPort {
  /** Sends a request; returns its id at the agent. @param params wire text */
  request(method: string, params: string, answered: (answer: AgentAnswer) => void): string;
  notify(method: string, params: string): void;
  /** Answers a request of the agent. @param wire the whole message */
  respond(wire: string): void;
  /** Ends the agent as in a crash and lets the next request start it again. */
  restart(why: string): void;
}

/** A session that has an agent to go on with, or why not. */
export type BoundOutcome =
  | { readonly outcome: 'bound'; readonly agent: AgentPort; readonly agentSessionId: string }
  | { readonly outcome: 'agent_error'; readonly error: string }
  | { readonly outcome: 'unavailable'; readonly error: RpcError };
