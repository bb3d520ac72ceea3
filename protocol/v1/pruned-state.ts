/**
 * What a `pruned` event keeps of the events that it stands for: enough to go on. Its payload, wire text of an object:
 *
 *   {"low":120,"events":119,"firstWords":"...","title":"...","userMessages":7,"children":[...],
 *    "prompts":[["<promptId>","<turnId>","<digest>"]],"bound":{"agentSessionId":"...","how":"...","response":{...},"proven":true},
 *    "snapshots":[[<kind>,{...the last update...}]],"code":"PROMPT_OUTCOME_UNKNOWN","message":"..."}
 *
 * `code` and `message` are the answer to a promptId whose own answer is gone.
 */
import { isObject } from '../json-rpc.ts';
import { items, parseWire, stringifyWire, valueAt } from '../wire-text.ts';
import type { SessionState } from './session-state.ts';

/** promptIds are kept of the latest prompts only. */
const KEPT_PROMPTS = 10_000;

export interface PrunedPlace {
  /** Seq of the `pruned` event. */
  readonly low: number;
  /** Events that went in all. */
  readonly events: number;
  /** The beginning of the first user message, for a title. */
  readonly firstWords: string | undefined;
}

/** @param state what the events up to `low` fold to */
export function prunedPayload(state: SessionState, { low, events, firstWords }: PrunedPlace): string {
  const prompts = [...state.prompts].slice(-KEPT_PROMPTS).map(([id, { turnId, digest }]) => [id, turnId, digest]);
  const { title, userMessages, children, bound, snapshots } = state;
  const facts = stringifyWire({
    low,
    events,
    firstWords,
    title,
    userMessages,
    children: [...children],
    prompts,
    code: 'PROMPT_OUTCOME_UNKNOWN',
    message: 'the answer to this prompt has been pruned',
  });
  const boundFacts =
    bound &&
    `${stringifyWire({ agentSessionId: bound.agentSessionId, how: bound.how, proven: bound.proven }).slice(0, -1)},"response":${bound.response}}`;
  const last = [...snapshots].map(([kind, wire]) => `[${kind},${wire}]`).join(',');
  return `${facts.slice(0, -1)}${boundFacts ? `,"bound":${boundFacts}` : ''},"snapshots":[${last}]}`;
}

/** The last updates of a `pruned` event, wire text by kind. */
export function prunedSnapshots(payload: string): [kind: number, wire: string][] {
  const list = valueAt(payload, ['snapshots']) ?? '[]';
  return items(list).flatMap(([start, end]) => {
    const pair = list.slice(start, end);
    const [kind, update] = items(pair);
    return kind && update ? [[Number(pair.slice(...kind)), pair.slice(...update)] as [number, string]] : [];
  });
}

/** Takes up what a `pruned` event says. Says nothing new when what it stands for was folded already. */
export function applyPruned(state: SessionState, seq: number, payload: string): void {
  const value = parseWire(payload);
  if (!isObject(value)) return;
  state.pruned = true;
  // It stands for the end of a turn: nothing ran there.
  state.openTurns.clear();
  const { title, userMessages, children, prompts, bound } = value;
  if (typeof title === 'string' || title === null) state.title = title;
  if (typeof userMessages === 'number') state.userMessages = Math.max(state.userMessages, userMessages);
  if (Array.isArray(children)) for (const id of children) if (typeof id === 'string') state.children.add(id);
  for (const entry of Array.isArray(prompts) ? (prompts as unknown[]) : []) {
    if (!Array.isArray(entry)) continue;
    const [promptId, turnId, digest] = entry as unknown[];
    if (typeof promptId !== 'string' || typeof turnId !== 'string' || typeof digest !== 'string') continue;
    state.prompts.set(promptId, { turnId, digest, ended: seq });
  }
  if (isObject(bound)) {
    const { agentSessionId, how, proven } = bound;
    state.bound = {
      agentSessionId: typeof agentSessionId === 'string' ? agentSessionId : undefined,
      how: typeof how === 'string' ? how : 'new',
      response: valueAt(payload, ['bound', 'response']) ?? '{}',
      proven: proven === true,
    };
  }
  for (const [kind, wire] of prunedSnapshots(payload)) state.snapshots.set(kind, wire);
}
