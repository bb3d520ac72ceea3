/**
 * The number under which a record holds its `sessionUpdate`, so that replay and folds can look without parsing.
 * Numbers never change their meaning; 0 is a kind that this version does not know.
 */
export const UPDATE_KINDS = {
  user_message_chunk: 1,
  agent_message_chunk: 2,
  agent_thought_chunk: 3,
  tool_call: 4,
  tool_call_update: 5,
  plan: 6,
  plan_update: 7,
  plan_removed: 8,
  available_commands_update: 9,
  current_mode_update: 10,
  config_option_update: 11,
  session_info_update: 12,
  usage_update: 13,
  notice: 14,
  compaction_update: 15,
  compaction_summary_chunk: 16,
  subagent_update: 17,
  session_message: 18,
  session_message_chunk: 19,
} as const;

export type UpdateKind = keyof typeof UPDATE_KINDS;

/** Kinds whose plain text chunks are joined to runs. */
export const TEXT_KINDS: ReadonlySet<number> = new Set([
  UPDATE_KINDS.user_message_chunk,
  UPDATE_KINDS.agent_message_chunk,
  UPDATE_KINDS.agent_thought_chunk,
]);

const NAMES = new Map<number, UpdateKind>(
  Object.entries(UPDATE_KINDS).map(([name, code]) => [code, name as UpdateKind]),
);

/** The number of a kind, 0 when it is not known. */
export function updateKindCode(name: unknown): number {
  return typeof name === 'string' && Object.hasOwn(UPDATE_KINDS, name) ? UPDATE_KINDS[name as UpdateKind] : 0;
}

export function updateKindName(code: number): UpdateKind | undefined {
  return NAMES.get(code);
}
