/** Random streams of updates, and which events a log must hold after them. */
import fc from 'fast-check';
import { jsonValue } from './properties.ts';

export type Update = Readonly<Record<string, unknown>> & { readonly sessionUpdate: string };

const text = fc.stringMatching(/^[ab"\\\n é😀\u2028{}]{1,12}$/u);
const meta = fc.constantFrom(undefined, undefined, undefined, { k: 1 }, { k: 2, deep: { a: [1] } });
const messageId = fc.constantFrom(undefined, undefined, null, 'm1', 'm2');
const toolCallId = fc.constantFrom('t1', 't2', 't3');

function record(fields: Record<string, fc.Arbitrary<unknown>>): fc.Arbitrary<Update> {
  return fc.record(fields).map((made) => {
    return Object.fromEntries(Object.entries(made).filter(([, value]) => value !== undefined)) as Update;
  });
}

function of(...kinds: string[]): fc.Arbitrary<string> {
  return fc.constantFrom(...kinds);
}

const chunk = record({
  sessionUpdate: of('agent_message_chunk', 'agent_message_chunk', 'agent_thought_chunk', 'user_message_chunk'),
  content: text.map((value) => ({ type: 'text', text: value })),
  messageId,
  _meta: meta,
});

const oddChunk = record({
  sessionUpdate: of('agent_message_chunk', 'agent_thought_chunk'),
  content: fc.constantFrom(
    { type: 'text', text: 'annotated', annotations: { priority: 1 } },
    { type: 'image', data: 'AA==', mimeType: 'image/png' },
    { type: 'alien', deep: { n: 1 } },
  ),
  messageId,
  future: fc.constantFrom(undefined, 1, { a: 1 }),
});

const toolCall = record({
  sessionUpdate: of('tool_call'),
  toolCallId,
  title: text,
  status: fc.constantFrom('pending', 'in_progress', undefined),
});

const toolUpdate = record({
  sessionUpdate: of('tool_call_update'),
  toolCallId,
  status: fc.constantFrom('pending', 'in_progress', 'completed', 'failed'),
  rawOutput: fc.constantFrom(undefined, { n: 1 }),
  _meta: meta,
});

/** Patches that change no status. */
const progress = record({
  sessionUpdate: of('tool_call_update'),
  toolCallId,
  title: fc.option(text, { nil: undefined }),
  rawOutput: fc.constantFrom(undefined, null, { n: 2 }, { n: 3 }),
  content: fc.option(
    text.map((value) => [{ type: 'content', content: { type: 'text', text: value } }]),
    { nil: undefined },
  ),
});

const snapshot = fc.oneof(
  record({ sessionUpdate: of('current_mode_update'), currentModeId: of('ask', 'code') }),
  record({
    sessionUpdate: of('available_commands_update'),
    availableCommands: fc.constantFrom([], [{ name: 'c', description: 'd' }]),
  }),
  record({
    sessionUpdate: of('config_option_update'),
    configOptions: fc.constantFrom([], [{ id: 'o', name: 'O', type: 'select', currentValue: 'a', options: [] }]),
  }),
);

const other = fc.oneof(
  record({
    sessionUpdate: of('plan'),
    entries: fc.constantFrom([], [{ content: 'c', priority: 'low', status: 'pending' }]),
  }),
  record({ sessionUpdate: of('usage_update'), used: fc.nat(100), size: fc.constant(100) }),
  record({ sessionUpdate: of('session_info_update'), title: fc.constantFrom('one', 'two', null) }),
  record({ sessionUpdate: of('plan_update'), plan: fc.constantFrom({ planId: 'p', type: 'markdown', content: 'c' }) }),
  record({ sessionUpdate: of('compaction_update'), compactionId: of('c1'), status: of('in_progress', 'completed') }),
  record({
    sessionUpdate: of('compaction_summary_chunk'),
    compactionId: of('c1'),
    content: text.map((value) => ({ type: 'text', text: value })),
  }),
  record({ sessionUpdate: of('_alien', 'dream_update'), odd: jsonValue() }),
);

export const anyUpdate: fc.Arbitrary<Update> = fc.oneof(
  { weight: 10, arbitrary: chunk },
  { weight: 1, arbitrary: oddChunk },
  { weight: 2, arbitrary: toolCall },
  { weight: 2, arbitrary: toolUpdate },
  { weight: 3, arbitrary: progress },
  { weight: 2, arbitrary: snapshot },
  { weight: 2, arbitrary: other },
);

interface OpenRun {
  readonly key: string;
  readonly update: Update;
  text: string;
}

const PROGRESS_FIELDS = ['title', 'rawOutput', 'content', 'status'];
const SNAPSHOTS = ['current_mode_update', 'available_commands_update', 'config_option_update', 'session_info_update'];

/**
 * The `update` events of one turn by the rules of the log: neighbouring text of one message is one event; a patch that
 * changes nothing but progress waits, merged, for the call's next event; a repeated snapshot is none. Written down a
 * second time here, so that both have to be wrong to agree.
 */
export class LogModel {
  readonly events: unknown[] = [];
  #run: OpenRun | undefined;
  readonly #status = new Map<string, unknown>();
  readonly #pending = new Map<string, Record<string, unknown>>();
  readonly #snapshots = new Map<string, string>();

  take(update: Update): void {
    if (isPlainText(update)) this.#text(update);
    else if (update.sessionUpdate.startsWith('tool_call')) this.#tool(update);
    else if (SNAPSHOTS.includes(update.sessionUpdate)) {
      const same = this.#snapshots.get(update.sessionUpdate) === JSON.stringify(update);
      this.#snapshots.set(update.sessionUpdate, JSON.stringify(update));
      if (!same) this.#event(update);
    } else this.#event(update);
  }

  endTurn(): void {
    for (const id of this.#pending.keys()) this.#flush(id);
    this.#closeRun();
  }

  #text(update: Update): void {
    const { messageId = null, _meta = null } = update as { messageId?: unknown; _meta?: unknown };
    const key = JSON.stringify([update.sessionUpdate, messageId, _meta]);
    const body = (update['content'] as { text: string }).text;
    if (this.#run?.key === key) this.#run.text += body;
    else {
      this.#closeRun();
      this.#run = { key, update, text: body };
    }
  }

  #tool(update: Update): void {
    const id = update['toolCallId'] as string;
    const status = update['status'];
    const known = this.#status.has(id);
    const onlyFields = Object.keys(update).every((key) =>
      ['sessionUpdate', 'toolCallId', ...PROGRESS_FIELDS].includes(key),
    );
    const patch = update.sessionUpdate === 'tool_call_update';
    const fields = Object.fromEntries(
      Object.entries(update).filter(([key, value]) => PROGRESS_FIELDS.includes(key) && value !== null),
    );
    if (known && patch && onlyFields && (status === undefined || status === this.#status.get(id))) {
      if (Object.keys(fields).length > 0) this.#pending.set(id, { ...this.#pending.get(id), ...fields });
      return;
    }
    const overridden = patch && onlyFields && Object.keys(this.#pending.get(id) ?? {}).every((key) => key in fields);
    if (overridden) this.#pending.delete(id);
    this.#flush(id);
    this.#event(update);
    this.#status.set(id, status ?? this.#status.get(id));
  }

  #flush(id: string): void {
    const fields = this.#pending.get(id);
    this.#pending.delete(id);
    if (fields) this.#event({ sessionUpdate: 'tool_call_update', toolCallId: id, ...fields });
  }

  #event(update: unknown): void {
    this.#closeRun();
    this.events.push(update);
  }

  #closeRun(): void {
    if (!this.#run) return;
    const { update, text: joined } = this.#run;
    this.events.push({ ...update, content: { type: 'text', text: joined } });
    this.#run = undefined;
  }
}

function isPlainText(update: Update): boolean {
  const content = update['content'] as { type?: unknown; text?: unknown } | undefined;
  const keys = ['sessionUpdate', 'content', 'messageId', '_meta'];
  return (
    /^(user_message|agent_message|agent_thought)_chunk$/.test(update.sessionUpdate) &&
    content?.type === 'text' &&
    Object.keys(content).length === 2 &&
    Object.keys(update).every((key) => keys.includes(key))
  );
}
