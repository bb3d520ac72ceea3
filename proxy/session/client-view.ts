/**
 * What one client is shown of an update beyond what it hides by kind: options that are on or off only when it knows
 * them, another client's terminals as text, children only when it knows of them or asked for them.
 */
import { withoutItemsOfType } from '../../protocol/v1/gates.ts';
import { UPDATE_KINDS } from '../../protocol/v1/update-kinds.ts';
import { memberAt, setValue, splice } from '../../protocol/wire-text.ts';
import type { Attachment, View } from './attachment.ts';
import { replaceTerminals } from './terminals.ts';

/** Whether a terminal runs at the client of this view. */
export type OwnsTerminal = (view: View, terminalId: string) => boolean;

/** Whether the client is shown updates with this envelope at all. @param childSessionId wire text */
export function isShown({ view, children }: Attachment, kind: number, childSessionId: string | undefined): boolean {
  if (view.hidden.has(kind)) return false;
  return childSessionId === undefined || view.children || children.has(childSessionId);
}

/** Whether `updateFor` may change an update for some client. Looked at once, when it is recorded. */
export function varies(kind: number, update: string): boolean {
  if (kind === UPDATE_KINDS.config_option_update) return true;
  if (kind !== UPDATE_KINDS.tool_call && kind !== UPDATE_KINDS.tool_call_update) return false;
  return update.includes('"terminal"');
}

/** The update as this client is shown it; everything that is not changed keeps its bytes. */
export function updateFor(view: View, kind: number, update: string, owns: OwnsTerminal): string {
  if (!varies(kind, update)) return update;
  if (kind === UPDATE_KINDS.config_option_update) {
    return view.booleanOptions ? update : withoutBooleanOptions(update);
  }
  const content = memberAt(update, ['content']);
  if (!content) return update;
  const text = update.slice(content.valueStart, content.valueEnd);
  const shown = replaceTerminals(text, (terminalId) => (owns(view, terminalId) ? undefined : ELSEWHERE));
  return shown === text ? update : splice(update, [setValue(content, shown)]);
}

const ELSEWHERE = '[A terminal that runs at another client. What it printed follows.]';

/** A result that names the session's options, as this client is answered. */
export function resultFor(view: View, result: string): string {
  return view.booleanOptions ? result : withoutBooleanOptions(result);
}

function withoutBooleanOptions(object: string): string {
  if (!object.includes('"configOptions"')) return object;
  const found = memberAt(object, ['configOptions']);
  if (!found) return object;
  const text = object.slice(found.valueStart, found.valueEnd);
  const kept = withoutItemsOfType(text, 'boolean');
  return kept === text ? object : splice(object, [setValue(found, kept)]);
}
