/**
 * Tool progress: patches of a tool call that change no status are shown live and merged, field by field, into one
 * pending patch per call. It becomes an event just before the call's next event, unless that one overrides all its
 * fields, and at the end of the turn or of the agent.
 */
import { stringifyWire } from '../../protocol/wire-text.ts';
import type { Attachment } from './attachment.ts';

export interface PendingPatch {
  readonly toolCallId: string;
  readonly turnId: string | undefined;
  /** The patched fields, wire text by name. */
  readonly fields: Map<string, string>;
  childSessionId: string | undefined;
  /** Who has been shown all of it live. Lives on with its event: what shows the patches may run after it was taken. */
  readonly seenBy: Set<Attachment>;
}

export class ToolProgress {
  readonly #pending = new Map<string, PendingPatch>();

  /** Merges a patch into its pending patch. @param seenBy who has seen the pending patch, when it begins here */
  merge(
    toolCallId: string,
    fields: ReadonlyMap<string, string>,
    turnId: string | undefined,
    childSessionId: string | undefined,
    seenBy: () => Set<Attachment>,
  ): PendingPatch {
    const known = this.#pending.get(toolCallId);
    const patch = known ?? { toolCallId, turnId, fields: new Map(), childSessionId, seenBy: seenBy() };
    for (const [name, value] of fields) patch.fields.set(name, value);
    if (!known) this.#pending.set(toolCallId, patch);
    return patch;
  }

  /** Takes the patch that has to be written before an event of this call which sets `overridden`. */
  takeBefore(toolCallId: string, overridden: ReadonlyMap<string, string>): PendingPatch | undefined {
    const patch = this.#pending.get(toolCallId);
    if (!patch) return undefined;
    this.#pending.delete(toolCallId);
    for (const name of patch.fields.keys()) if (!overridden.has(name)) return patch;
    return undefined;
  }

  takeAll(): PendingPatch[] {
    const all = [...this.#pending.values()];
    this.#pending.clear();
    return all;
  }

  all(): IterableIterator<PendingPatch> {
    return this.#pending.values();
  }
}

/** The patch as a `tool_call_update`. */
export function patchUpdate(patch: PendingPatch): string {
  let fields = '';
  for (const [name, value] of patch.fields) fields += `,"${name}":${value}`;
  return `{"sessionUpdate":"tool_call_update","toolCallId":${stringifyWire(patch.toolCallId)}${fields}}`;
}
