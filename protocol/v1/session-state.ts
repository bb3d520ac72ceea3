/**
 * What a session needs to know to go on: a fold over its events. A live session applies each event as it is appended;
 * a cold one applies its log when it is opened. Nothing here is stored.
 */
import { type JsonObject, isObject } from '../json-rpc.ts';
import { parseWire, valueAt } from '../wire-text.ts';
import { UPDATE_KINDS } from './update-kinds.ts';

export interface PromptRecord {
  readonly turnId: string;
  readonly digest: string;
  /** Seq of its `turn_ended`. */
  ended?: number;
}

export interface ToolState {
  status: string | undefined;
  /** It has been `in_progress` at some time. */
  started: boolean;
}

export interface ApprovalState {
  readonly seq: number;
  readonly toolCallId: string | undefined;
  state: 'pending' | 'resolved' | 'interrupted';
}

export interface SessionState {
  /** Turns without their end, oldest first. */
  readonly openTurns: Map<string, { started: boolean }>;
  readonly prompts: Map<string, PromptRecord>;
  readonly tools: Map<string, ToolState>;
  readonly approvals: Map<string, ApprovalState>;
  /** Last update by kind, wire text; the session's own, not its children's. */
  readonly snapshots: Map<number, string>;
  /** Sessions that this one has announced as its children. */
  readonly children: Set<string>;
  /** The agent's last answer to new, load, resume or fork, wire text of an object. */
  bound: { agentSessionId: string; response: string } | undefined;
  userMessages: number;
  title: string | null | undefined;
}

export function emptySessionState(): SessionState {
  return {
    openTurns: new Map(),
    prompts: new Map(),
    tools: new Map(),
    approvals: new Map(),
    snapshots: new Map(),
    children: new Set(),
    bound: undefined,
    userMessages: 0,
    title: undefined,
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
      state.openTurns.delete(event.turnId);
      for (const prompt of state.prompts.values()) if (prompt.turnId === event.turnId) prompt.ended = event.seq;
      return;
    case 'session_bound': {
      const payload = event.payload();
      const bound = parseWire(payload) as { agentSessionId: string };
      const response = valueAt(payload, ['response']) ?? '{}';
      state.bound = { agentSessionId: bound.agentSessionId, response };
      return;
    }
    case 'approval_requested': {
      const { approvalId } = parseWire(event.payload()) as { approvalId: string };
      state.approvals.set(approvalId, { seq: event.seq, toolCallId: event.toolCallId, state: 'pending' });
      return;
    }
    case 'approval_reopened':
    case 'approval_resolved':
    case 'approval_interrupted': {
      const { approvalId } = parseWire(event.payload()) as { approvalId: string };
      const approval = state.approvals.get(approvalId);
      if (approval) approval.state = APPROVAL_AFTER[event.type];
      return;
    }
    default:
  }
}

const APPROVAL_AFTER = {
  approval_reopened: 'pending',
  approval_resolved: 'resolved',
  approval_interrupted: 'interrupted',
} as const;

function applyTurn(state: SessionState, event: FoldedEvent): void {
  const turnId = event.turnId;
  if (turnId === undefined) return;
  const started = event.type === 'turn_started';
  state.openTurns.set(turnId, { started });
  if (started) state.userMessages++;
  const facts = valueAt(event.payload(), ['facts']);
  const { promptId, digest } = parseWire(facts ?? '{}') as { promptId?: string; digest?: string };
  if (promptId !== undefined && digest !== undefined && !state.prompts.has(promptId)) {
    state.prompts.set(promptId, { turnId, digest });
  }
}

function applyUpdate(state: SessionState, event: FoldedEvent): void {
  if (event.kind === UPDATE_KINDS.tool_call || event.kind === UPDATE_KINDS.tool_call_update) {
    if (event.toolCallId === undefined) return;
    const update = event.value ?? (parseWire(event.payload()) as JsonObject);
    const status = typeof update['status'] === 'string' ? update['status'] : undefined;
    const tool = state.tools.get(event.toolCallId) ?? { status: undefined, started: false };
    if (status !== undefined) tool.status = status;
    if (status === 'in_progress') tool.started = true;
    state.tools.set(event.toolCallId, tool);
    return;
  }
  if (event.kind === UPDATE_KINDS.subagent_update) {
    const update = parseWire(event.payload()) as { sessionId?: unknown; childSessionId?: unknown };
    for (const id of [update.sessionId, update.childSessionId]) if (typeof id === 'string') state.children.add(id);
    return;
  }
  if (event.childSessionId !== undefined || !SNAPSHOTS.has(event.kind)) return;
  const payload = event.payload();
  state.snapshots.set(event.kind, payload);
  if (event.kind === UPDATE_KINDS.session_info_update) {
    const update: unknown = parseWire(payload);
    if (isObject(update) && (typeof update['title'] === 'string' || update['title'] === null)) {
      state.title = update['title'];
    }
  }
}

/** A tool call that has begun and has no result. */
export function isOpenTool(tool: ToolState): boolean {
  return tool.status === undefined || !FINAL.has(tool.status);
}
