/**
 * What the bench agent prints and the bench client expects, so both sides read it here.
 *
 * A prompt's text is a script. Every script is a number of equal groups: first `deltas` text chunks, then `events` tool
 * events, and a pause of `everyMs` before the next group (0: no pause, as fast as the pipe takes it).
 *
 *   full N             N deltas                          mixed D:E N        N groups of D deltas and E tool events
 *   paced N every MS   a delta every MS milliseconds     tool N every MS    a tool event every MS milliseconds
 *
 * Every text and every tool title is a cell of `CELL_BYTES`: index, time of writing, filler with an escape and a
 * two-byte character. All strings here are wire text (one character a byte).
 */
export interface Plan {
  readonly groups: number;
  readonly deltas: number;
  readonly events: number;
  readonly everyMs: number;
}

const FORM = /^(full|paced|tool|mixed)(?: (\d+):(\d+))? (\d+)(?: every (\d+))?$/;

export function parseScript(script: string): Plan {
  const [, kind, deltas = '1', events = '0', groups, everyMs = '0'] = FORM.exec(script) ?? [];
  if (kind === undefined) throw new Error(`no such script: ${script}`);
  const counts = kind === 'tool' ? { deltas: 0, events: 1 } : { deltas: Number(deltas), events: Number(events) };
  const plan = { groups: Number(groups), ...counts, everyMs: Number(everyMs) };
  if (plan.everyMs === 0 && plan.events % 2 !== 0) throw new Error('at full rate tool events come in pairs');
  return plan;
}

const INDEX_DIGITS = 8;
const STAMP_DIGITS = 19;
const FILLER = ' caf\xc3\xa9 au lait, if any\\n';
const FILLER_AT = INDEX_DIGITS + 1 + STAMP_DIGITS;
export const CELL_BYTES = FILLER_AT + FILLER.length;

function digits(value: number, width: number): string {
  return value.toFixed(0).padStart(width, '0');
}

export function cell(index: number, stampNs: number): string {
  return `${digits(index, INDEX_DIGITS)} ${digits(stampNs, STAMP_DIGITS)}${FILLER}`;
}

/** The time in the cell number `index` that stands at `at`; undefined when another text stands there. */
export function cellStampNs(text: string, at: number, index: number): number | undefined {
  const own = text.startsWith(digits(index, INDEX_DIGITS), at) && text.startsWith(FILLER, at + FILLER_AT);
  return own ? Number(text.slice(at + INDEX_DIGITS + 1, at + FILLER_AT)) : undefined;
}

/** Monotonic nanoseconds, the same clock in every process of the machine. */
export function nowNs(): number {
  return Number(process.hrtime.bigint());
}

function updateLine(sessionId: string, update: string): string {
  return `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"${sessionId}","update":{${update}}}}\n`;
}

export function deltaLine(sessionId: string, index: number, stampNs: number): string {
  const content = `"content":{"type":"text","text":"${cell(index, stampNs)}"}`;
  return updateLine(sessionId, `"sessionUpdate":"agent_message_chunk",${content}`);
}

const INPUT =
  '"rawInput":{"command":["npm","test","--","--reporter=dot"],"cwd":"/home/user/project/packages/core","timeoutMs":120000,' +
  '"env":{"CI":"1","FORCE_COLOR":"0"},"description":"Runs the tests of the core package once"},' +
  '"locations":[{"path":"/home/user/project/packages/core/source/index.ts","line":118}]';
const OUTPUT = `"content":[{"type":"content","content":{"type":"text","text":"${'A test passed in 12 ms.\\n'.repeat(14)}"}}]`;

export function callOfEvent(index: number): number {
  return index >> 1;
}

/** Even indexes start a tool call, odd ones complete it: both are durable events. */
export function eventLine(sessionId: string, index: number, stampNs: number): string {
  const starts = index % 2 === 0;
  const head = `"toolCallId":"call-${digits(callOfEvent(index), INDEX_DIGITS)}","title":"${cell(index, stampNs)}"`;
  const start = `"sessionUpdate":"tool_call",${head},"kind":"execute","status":"pending",${INPUT}`;
  return updateLine(
    sessionId,
    starts ? start : `"sessionUpdate":"tool_call_update",${head},"status":"completed",${OUTPUT}`,
  );
}

/** The lines of one group, `group` counted from 0. */
export function groupLines(plan: Plan, sessionId: string, group: number, stampNs: number): string {
  let lines = '';
  for (let i = 0; i < plan.deltas; i++) lines += deltaLine(sessionId, group * plan.deltas + i, stampNs);
  for (let i = 0; i < plan.events; i++) lines += eventLine(sessionId, group * plan.events + i, stampNs);
  return lines;
}

/** Writes `value` over the index digits at `at`. */
export function writeIndex(bytes: Buffer, at: number, value: number): void {
  let rest = value;
  for (let i = at + INDEX_DIGITS - 1; i >= at; i--) {
    bytes[i] = 48 + (rest % 10);
    rest = Math.floor(rest / 10);
  }
}
