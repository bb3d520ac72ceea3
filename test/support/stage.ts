import { at, type Message, type Received, textAt } from './json.ts';
import type { RawClient } from './raw-client.ts';
import type { Scope } from './scope.ts';
import { type AgentHandler, type AgentLife, ScriptedAgent } from './scripted-agent.ts';
import { Sidecar } from './sidecar.ts';

export interface StageOptions {
  readonly args?: readonly string[];
  /** The agent's capabilities in its answer to `initialize`. */
  readonly capabilities?: object;
  readonly handlers?: Readonly<Record<string, AgentHandler>>;
  /** Another build of the sidecar. */
  readonly program?: string;
  /** The first client opts in to the extensions. */
  readonly optIn?: boolean;
  readonly clientCapabilities?: object;
}

/** A turn that the agent has been asked for and the test has not answered yet. */
export interface OpenTurn {
  /** What the agent received. */
  readonly request: Message;
  readonly received: Received;
  /** The client's answer, once there. */
  readonly answer: Promise<Received>;
  /** Answers the prompt and waits until the client has it. */
  readonly end: (result?: object) => Promise<Received>;
}

/** A scripted agent behind a sidecar, with one client that has one session. */
export interface Stage {
  readonly scope: Scope;
  readonly agent: ScriptedAgent;
  readonly life: AgentLife;
  readonly sidecar: Sidecar;
  readonly client: RawClient;
  readonly sessionId: string;
  /** The agent's id of the same session. */
  readonly agentSessionId: string;
  /** One more client on the Unix socket, initialised. */
  readonly join: (optIn?: boolean | object) => Promise<RawClient>;
  /** Sends a prompt and waits until the agent has it. */
  readonly turn: (text?: string, from?: RawClient) => Promise<OpenTurn>;
}

export async function setStage(scope: Scope, options: StageOptions = {}): Promise<Stage> {
  const agent = await ScriptedAgent.listen(scope);
  agent.handlers.set('initialize', () => ({ protocolVersion: 1, agentCapabilities: options.capabilities ?? {} }));
  for (const [method, handler] of Object.entries(options.handlers ?? {})) agent.handlers.set(method, handler);
  const { program } = options;
  const sidecar = await Sidecar.start(scope, {
    agent: agent.command,
    args: options.args ?? [],
    ...(program !== undefined && { program }),
  });
  const client = await sidecar.unix();
  await client.initialize({
    ...(options.optIn && { sidecar: true }),
    ...(options.clientCapabilities && { capabilities: options.clientCapabilities }),
  });
  const sessionId = await client.newSession();
  const life = await agent.life();
  const made = life.received.find(({ message }) => message.method === 'session/new');
  if (!made) throw new Error('the agent was not asked for a session');
  let turns = 0;
  const turn = async (text = 'go', from = client): Promise<OpenTurn> => {
    const answer = from.ask('session/prompt', { sessionId, prompt: [{ type: 'text', text }] });
    const received = await life.saw('session/prompt', turns++);
    const end = async (result: object = { stopReason: 'end_turn' }): Promise<Received> => {
      life.reply(received.message, result);
      return answer;
    };
    return { request: received.message, received, answer, end };
  };
  const join = async (optIn: boolean | object = false): Promise<RawClient> => {
    const joined = await sidecar.unix();
    await joined.initialize(optIn === false ? {} : { sidecar: optIn });
    return joined;
  };
  const agentSessionId = `agent-session-1`;
  return { scope, agent, life, sidecar, client, sessionId, agentSessionId, join, turn };
}

/** The kinds of the updates, with their text: `agent_message_chunk:hello`. */
export function kindsOf(updates: readonly Received[]): string[] {
  return updates.map(({ message }) => {
    const update = at(message, 'params', 'update');
    const kind = textAt(update, 'sessionUpdate');
    const text = at(update, 'content', 'text') ?? at(update, 'toolCallId');
    return typeof text === 'string' ? `${kind}:${text}` : kind;
  });
}
