/** A request of the agent that a client has to answer. */
import type { RpcError } from '../../protocol/error.ts';
import { type JsonObject, errorText } from '../../protocol/json-rpc.ts';
import { stringifyWire } from '../../protocol/wire-text.ts';
import type { AgentPort } from './agent-port.ts';

export interface AgentRequest {
  /** The agent's id, wire text. */
  readonly id: string;
  readonly method: string;
  readonly params: JsonObject;
  /** The params as they came; `{}` when there were none. */
  readonly paramsText: string;
  readonly agent: AgentPort;
}

/** Answers a request of the agent with an error of ours. */
export function errorAnswer(request: AgentRequest, error: RpcError): void {
  request.agent.respond(errorText(request.id, stringifyWire(error)));
}
