/**
 * What a session needs to know to go on: a fold over its events. A live session applies each event as it is appended;
 * a cold one applies its log when it is opened. Nothing here is stored.
 */
import { type JsonObject, isObject } from '../json-rpc.ts';
import { fingerprintOf } from '../approval-answer.ts';
import { ownText, parseWire, valueAt } from '../wire-text.ts';
import { applyPruned } from './pruned-state.ts';
import { UPDATE_KINDS } from './update-kinds.ts';

export interface PromptRecord {
  readonly turnId: string;
  readonly digest: string;
  /** Seq of its `turn_ended`. */
  ended?: number;
}

export interface OpenTurn {
  readonly started: boolean;
  readonly promptId: string | undefined;
}

export interface ToolState {
  status: string | undefined;
  /** It has been `in_progress` at some time. */
  started: boolean;
  /** Turn of its last event that belonged to one. */
  turnId: string | undefined;
  childSessionId: string | undefined;
  /** What an open call shows, wire text of its `content`. */
  content: string | undefined;
}

/** A running subagent, by the sessionId that it announced. */
export interface SubagentState {
  turnId: string | undefined;
  childSessionId: string | undefined;
}

export interface ApprovalState {
  /** Of its `approval_requested`. */
  readonly seq: number;
  toolCallId: string | undefined;
  turnId: string | undefined;
  /** See `fingerprintOf`. */
  fingerprint: string | undefined;
  state: 'pending' | 'resolved' | 'interrupted';
  /** The last recorded outcome, wire text. */
  outcome: string | undefined;
  /** The agent went on behind the answer: an event of the call, or the end of the turn, follows it. */
  used: boolean;
  /** Ids of the offered options that mean no. */
  rejecting: readonly string[];
  /** Resolved by a no, or by nobody. */
  refused: boolean;
}

/** How the session came to live in an agent, the last time. */
export interface BoundState {
  /** Undefined in a fork that no agent knows yet. */
  readonly agentSessionId: string | undefined;
  readonly how: string;
  /** The agent's answer to new, load, resume or fork, wire text of an object. */
  readonly response: string;
  /** A turn has been answered since: the agent has what it was primed with. */
  proven: boolean;
}

export interface SessionState {
  /** Turns without their end, oldest first. */
  readonly openTurns: Map<string, OpenTurn>;
  readonly prompts: Map<string, PromptRecord>;
  readonly tools: Map<string, ToolState>;
  readonly approvals: Map<string, ApprovalState>;
  /** Answers behind which the agent has not gone on. */
  readonly unusedAnswers: Set<ApprovalState>;
  /** Last update by kind, wire text; the session's own, not its children's. */
  readonly snapshots: Map<number, string>;
  /** Sessions that this one has announced as its children. */
  readonly children: Set<string>;
  /** Subagents that are marked running. */
  readonly subagents: Map<string, SubagentState>;
  bound: BoundState | undefined;
  /** Messages of the user: prompts that were started, and what an import brought. */
  userMessages: number;
  title: string | null | undefined;
  /** Its first events are gone; what stands for them may have come with an import, as the first of this log. */
  pruned: boolean;
}

export function emptySessionState(): SessionState {
  return {
    openTurns: new Map(),
    prompts: new Map(),
    tools: new Map(),
    approvals: new Map(),
    unusedAnswers: new Set(),
    snapshots: new Map(),
    children: new Set(),
    subagents: new Map(),
    bound: undefined,
    userMessages: 0,
    title: undefined,
    pruned: false,
  };
}

/** An event as the fold sees it; `payload` is called only when it is needed. */
export interface FoldedEvent {
  readonly seq: number;
  readonly type: string;
  readonly kind: number;
  readonly turnId?: string | undefined;
  readonly toolCallId?: string | undefined;
  readonly childSessionId?: string | undefined;
  /** Made by the sidecar, not by the agent. */
  readonly synthetic?: boolean | undefined;
  readonly payload: () => string;
  /** The payload of an update, parsed, when the caller has it. */
  readonly value?: JsonObject | undefined;
}

const FINAL = new Set(['completed', 'failed']);

const SNAPSHOTS = new Set<number>([
  UPDATE_KINDS.available_commands_update,
  UPDATE_KINDS.current_mode_update,
  UPDATE_KINDS.config_option_update,
  UPDATE_KINDS.session_info_update,
]);

export function applyEvent(state: SessionState, event: FoldedEvent): void {
  switch (event.type) {
    case 'update':
      applyUpdate(state, event);
      return;
    case 'turn_queued':
    case 'turn_started':
      applyTurn(state, event);
      return;
    case 'turn_ended':
      if (event.turnId === undefined) return;
      if (!event.synthetic) useAnswers(state, ({ turnId }) => turnId === event.turnId);
      endPrompt(state, event.turnId, event.seq);
      state.openTurns.delete(event.turnId);
      // An end of our own, as of a turn that was cancelled before the agent had it, shows nothing.
      if (
        state.bound &&
        !state.bound.proven &&
        !event.synthetic &&
        event.payload().startsWith('{"outcome":"response"')
      ) {
        state.bound.proven = true;
      }
      return;
    case 'session_bound': {
      const payload = event.payload();
      const { agentSessionId, how } = parseWire(payload) as { agentSessionId: string; how: string };
      const response = valueAt(payload, ['response']) ?? '{}';
      state.bound = { agentSessionId, how, response, proven: false };
      return;
    }
    case 'pruned':
      applyPruned(state, event.seq, event.payload());
      return;
    case 'session_forked':
      // The parent's agent session stays the parent's, and so do its answers to promptIds.
      state.bound = {
        agentSessionId: undefined,
        how: 'forked',
        response: state.bound?.response ?? '{}',
        proven: false,
      };
      state.prompts.clear();
      return;
    case 'approval_requested':
    case 'approval_reopened':
      applyApproval(state, event);
      return;
    case 'approval_resolved':
    case 'approval_interrupted': {
      const payload = event.payload();
      const { approvalId, outcome } = parseWire(payload) as { approvalId: string; outcome?: unknown };
      const approval = state.approvals.get(approvalId);
      if (!approval) return;
      approval.state = event.type === 'approval_resolved' ? 'resolved' : 'interrupted';
      approval.refused = approval.state === 'resolved' && isRefusal(outcome, approval.rejecting);
      if (approval.state === 'interrupted') return;
      approval.outcome = valueAt(payload, ['outcome']);
      state.unusedAnswers.add(approval);
      return;
    }
    default:
  }
}

function applyApproval(state: SessionState, event: FoldedEvent): void {
  const { approvalId, method, params } = parseWire(event.payload()) as {
    approvalId: string;
    method: string;
    params: JsonObject;
  };
  const options = Array.isArray(params['options']) ? (params['options'] as unknown[]) : [];
  const rejecting = options.flatMap((option) =>
    isObject(option) && typeof option['optionId'] === 'string' && String(option['kind']).startsWith('reject')
      ? [option['optionId']]
      : [],
  );
  const { toolCallId, turnId } = event;
  const known = state.approvals.get(approvalId);
  if (known) state.unusedAnswers.delete(known);
  state.approvals.set(approvalId, {
    seq: known?.seq ?? event.seq,
    toolCallId,
    turnId,
    fingerprint: fingerprintOf({ method, params }),
    state: 'pending',
    outcome: known?.outcome,
    used: false,
    rejecting,
    refused: false,
  });
}

/** The agent acted on these answers: when it asks again, it means something new. */
function useAnswers(state: SessionState, about: (approval: ApprovalState) => boolean): void {
  for (const approval of state.unusedAnswers) {
    if (!about(approval)) continue;
    approval.used = true;
    state.unusedAnswers.delete(approval);
  }
}

function isRefusal(outcome: unknown, rejecting: readonly string[]): boolean {
  if (!isObject(outcome)) return false;
  if (outcome['outcome'] === 'cancelled' || outcome['action'] === 'cancel' || outcome['action'] === 'decline') {
    return true;
  }
  return outcome['outcome'] === 'selected' && rejecting.includes(String(outcome['optionId']));
}

function applyTurn(state: SessionState, event: FoldedEvent): void {
  const turnId = event.turnId;
  if (turnId === undefined) return;
  const started = event.type === 'turn_started';
  if (started) state.userMessages++;
  const facts = valueAt(event.payload(), ['facts']);
  const { promptId, digest } = parseWire(facts ?? '{}') as { promptId?: string; digest?: string };
  state.openTurns.set(turnId, { started, promptId: promptId ?? state.openTurns.get(turnId)?.promptId });
  if (promptId !== undefined && digest !== undefined && !state.prompts.has(promptId)) {
    state.prompts.set(promptId, { turnId, digest });
  }
}

function endPrompt(state: SessionState, turnId: string, seq: number): void {
  const promptId = state.openTurns.get(turnId)?.promptId;
  const prompt = promptId === undefined ? undefined : state.prompts.get(promptId);
  if (prompt?.turnId === turnId) prompt.ended = seq;
}

function applyUpdate(state: SessionState, event: FoldedEvent): void {
  if (event.kind === UPDATE_KINDS.tool_call || event.kind === UPDATE_KINDS.tool_call_update) {
    if (event.toolCallId === undefined) return;
    const update = event.value ?? (parseWire(event.payload()) as JsonObject);
    const status = typeof update['status'] === 'string' ? update['status'] : undefined;
    const { turnId, childSessionId } = event;
    const known = state.tools.get(event.toolCallId);
    const tool = known ?? { status: undefined, started: false, turnId, childSessionId, content: undefined };
    if (status !== undefined) tool.status = status;
    if (status === 'in_progress') tool.started = true;
    if (turnId !== undefined) tool.turnId = turnId;
    if (!isOpenTool(tool)) tool.content = undefined;
    else if (Array.isArray(update['content'])) tool.content = ownText(valueAt(event.payload(), ['content']) ?? '[]');
    if (!known) state.tools.set(event.toolCallId, tool);
    if (!event.synthetic) useAnswers(state, ({ toolCallId }) => toolCallId === event.toolCallId);
    return;
  }
  if (event.kind === UPDATE_KINDS.subagent_update) {
    applySubagent(state, event);
    return;
  }
  if (event.kind === UPDATE_KINDS.user_message_chunk && event.childSessionId === undefined) {
    state.userMessages++;
    return;
  }
  if (event.childSessionId !== undefined || !SNAPSHOTS.has(event.kind)) return;
  const payload = event.payload();
  state.snapshots.set(event.kind, ownText(payload));
  if (event.kind === UPDATE_KINDS.session_info_update) {
    const update: unknown = parseWire(payload);
    if (isObject(update) && (typeof update['title'] === 'string' || update['title'] === null)) {
      state.title = update['title'];
    }
  }
}

function applySubagent(state: SessionState, event: FoldedEvent): void {
  const update = parseWire(event.payload()) as JsonObject;
  const { sessionId, state: told } = update;
  for (const id of [sessionId, update['childSessionId']]) if (typeof id === 'string') state.children.add(id);
  if (typeof sessionId !== 'string' || !isObject(told)) return;
  const { turnId, childSessionId } = event;
  const idle = told['state'] === 'idle' || told['state'] === 'unknown';
  if (idle) state.subagents.delete(sessionId);
  else state.subagents.set(sessionId, { turnId, childSessionId });
}

/** A tool call that has begun and has no result. */
export function isOpenTool(tool: ToolState): boolean {
  return tool.status === undefined || !FINAL.has(tool.status);
}
