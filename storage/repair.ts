/**
 * What a log's end says, and what is appended because of it. A pure function from what a log folds to: whoever has the
 * session appends the events once, `inspect` only shows them.
 *
 * Only turns without `turn_ended` are closed, and what belongs to them. Their end is appended last: a repair that is cut
 * off is taken up again by the next one, and a whole one leaves nothing to repair.
 */
import type { EventFields } from '../protocol/event.ts';
import {
  type ApprovalState,
  isOpenTool,
  type SessionState,
  type SubagentState,
  type ToolState,
} from '../protocol/v1/session-state.ts';
import { UPDATE_KINDS } from '../protocol/v1/update-kinds.ts';
import { encodeWire, stringifyWire } from '../protocol/wire-text.ts';
import type { StoredEvent } from './event-codec.ts';

/** `update._meta.sidecar.code` of a synthetic closer. */
export type CloserCode = 'TOOL_NOT_STARTED' | 'TOOL_OUTCOME_UNKNOWN' | 'SUBAGENT_INTERRUPTED';

/** An event to append. `toolCallId` and `childSessionId` are ordinary strings, the payload is wire text. */
export interface RepairEvent extends Omit<EventFields, 'time'> {
  /** Number of the update's kind, 0 for other events. */
  readonly kind: number;
}

/** Why the sidecar repairs a cold session. */
export const REPAIR_REASON = 'the sidecar was stopped in this turn';

const TEXTS: Readonly<Record<CloserCode, string>> = {
  TOOL_NOT_STARTED: 'This tool call was not started. It may be scheduled again.',
  TOOL_OUTCOME_UNKNOWN:
    'It is not known what this tool call did. Check the outside world or ask before it is run again.',
  SUBAGENT_INTERRUPTED: 'This subagent does not run any more.',
};

/**
 * Everything that a cold log needs.
 * @param why a sentence without its full stop, like `the sidecar was stopped in this turn`
 */
export function repairEvents(state: SessionState, why: string): RepairEvent[] {
  const events = closerEvents(state, (turnId) => turnId !== undefined && state.openTurns.has(turnId), why);
  for (const [approvalId, { state: now, toolCallId }] of state.approvals) {
    if (now !== 'pending') continue;
    const payload = stringifyWire({ approvalId, reason: why });
    events.push({ type: 'approval_interrupted', kind: 0, required: true, toolCallId, payload, synthetic: true });
  }
  for (const [turnId, { started }] of state.openTurns) {
    const code = started ? 'PROMPT_OUTCOME_UNKNOWN' : 'PROMPT_NOT_SENT';
    const payload = stringifyWire({ outcome: 'interrupted', code, message: why });
    events.push({ type: 'turn_ended', kind: 0, required: true, turnId, payload, synthetic: true });
  }
  return events;
}

/**
 * The ends of what ran in an agent that is gone: open tool calls of the turns that `ends` names (in a turn that ended
 * well an open call is the agent's own business), and every subagent, for these may outlive a turn but not the agent.
 */
export function closerEvents(
  state: SessionState,
  ends: (turnId: string | undefined) => boolean,
  why: string,
): RepairEvent[] {
  const events: RepairEvent[] = [];
  for (const [toolCallId, tool] of state.tools) {
    if (isOpenTool(tool) && ends(tool.turnId)) events.push(toolCloser(state, toolCallId, tool, why));
  }
  for (const [sessionId, subagent] of state.subagents) events.push(subagentCloser(sessionId, subagent));
  return events;
}

/**
 * The repaired view: the events that opening the session would append, numbered behind the log's head. Writes nothing.
 * @param time milliseconds since 1970 that the events show
 */
export function repairedView(state: SessionState, head: number, why: string, time: number): StoredEvent[] {
  return repairEvents(state, why).map((event, i) => ({
    ...event,
    ...(event.toolCallId === undefined ? {} : { toolCallId: encodeWire(event.toolCallId) }),
    ...(event.childSessionId === undefined ? {} : { childSessionId: encodeWire(event.childSessionId) }),
    seq: head + 1 + i,
    time,
    boot: '',
  }));
}

function toolCloser(state: SessionState, toolCallId: string, tool: ToolState, why: string): RepairEvent {
  const code = neverRan(state, toolCallId, tool) ? 'TOOL_NOT_STARTED' : 'TOOL_OUTCOME_UNKNOWN';
  const block = stringifyWire({ type: 'content', content: { type: 'text', text: `${TEXTS[code]} (${why})` } });
  // A patch replaces the whole content: what the call showed until now stays before our text.
  const shown = tool.content?.trim();
  const content = shown === undefined || /^\[\s*\]$/.test(shown) ? `[${block}]` : `${shown.slice(0, -1)},${block}]`;
  const payload = `{"sessionUpdate":"tool_call_update","toolCallId":${stringifyWire(toolCallId)},"status":"failed","content":${content},"_meta":{"sidecar":{"code":"${code}"}}}`;
  const kind = UPDATE_KINDS.tool_call_update;
  const { turnId, childSessionId } = tool;
  return { type: 'update', kind, turnId, toolCallId, childSessionId, payload, synthetic: true };
}

/** Agents ask before they begin: a call that was asked for and not allowed has done nothing, unless it said otherwise. */
function neverRan(state: SessionState, toolCallId: string, tool: ToolState): boolean {
  if (tool.started) return false;
  const asked: ApprovalState[] = [];
  for (const approval of state.approvals.values()) if (approval.toolCallId === toolCallId) asked.push(approval);
  return asked.length > 0 && asked.every((approval) => approval.state !== 'resolved' || approval.refused);
}

function subagentCloser(sessionId: string, subagent: SubagentState): RepairEvent {
  const code = 'SUBAGENT_INTERRUPTED';
  const payload = stringifyWire({
    sessionUpdate: 'subagent_update',
    sessionId,
    state: { state: 'idle', stopReason: 'cancelled' },
    _meta: { sidecar: { code, text: TEXTS[code] } },
  });
  const { turnId, childSessionId } = subagent;
  return { type: 'update', kind: UPDATE_KINDS.subagent_update, turnId, childSessionId, payload, synthetic: true };
}
