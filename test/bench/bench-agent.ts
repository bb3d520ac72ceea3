/**
 * An ACP agent on stdio whose prompts are scripts (see script.ts). It is made to cost little, so that what stands
 * between it and the client is what is measured.
 */
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { callOfEvent, groupLines, nowNs, parseScript, writeIndex, type Plan } from './script.ts';

const WRITE_BYTES = 64 * 1024;

interface Request {
  readonly id?: number | string;
  readonly method?: string;
  readonly params?: { readonly sessionId?: string; readonly prompt?: readonly { readonly text?: string }[] };
}

/** Ends when the bytes left the process, so that a slow reader slows the agent and the buffer may be reused. */
function write(bytes: Buffer): Promise<void> {
  return new Promise((resolve) => process.stdout.write(bytes, () => resolve()));
}

async function runPaced(plan: Plan, sessionId: string): Promise<void> {
  const startMs = performance.now();
  for (let group = 0; group < plan.groups; group++) {
    await sleep(Math.max(0, startMs + (group + 1) * plan.everyMs - performance.now()));
    await write(Buffer.from(groupLines(plan, sessionId, group, nowNs()), 'latin1'));
  }
}

interface IndexField {
  readonly at: number;
  /** The field's value in group `group`. */
  readonly value: (group: number) => number;
}

/** Where the indexes stand in a group's bytes; the first group is printed with recognisable ones to find them. */
function indexFields(plan: Plan, group: string): readonly IndexField[] {
  const fields: IndexField[] = [];
  let at = -1;
  for (let i = 0; i < plan.deltas; i++) {
    at = group.indexOf('"text":"', at + 1) + '"text":"'.length;
    fields.push({ at, value: (g) => g * plan.deltas + i });
  }
  for (let i = 0; i < plan.events; i++) {
    at = group.indexOf('"toolCallId":"call-', at + 1) + '"toolCallId":"call-'.length;
    fields.push({ at, value: (g) => callOfEvent(g * plan.events + i) });
    at = group.indexOf('"title":"', at + 1) + '"title":"'.length;
    fields.push({ at, value: (g) => g * plan.events + i });
  }
  return fields;
}

/** One buffer of whole groups is written again and again; only the index digits change between two writes. */
async function runFull(plan: Plan, sessionId: string): Promise<void> {
  const group = groupLines(plan, sessionId, 0, 0);
  const fields = indexFields(plan, group);
  const perWrite = Math.max(1, Math.floor(WRITE_BYTES / group.length));
  const block = Buffer.from(group.repeat(perWrite), 'latin1');
  for (let done = 0; done < plan.groups; done += perWrite) {
    const count = Math.min(perWrite, plan.groups - done);
    for (let i = 0; i < count; i++) {
      for (const field of fields) writeIndex(block, i * group.length + field.at, field.value(done + i));
    }
    await write(count === perWrite ? block : block.subarray(0, count * group.length));
  }
}

async function runScript(request: Request): Promise<unknown> {
  const sessionId = request.params?.sessionId ?? '';
  const plan = parseScript(request.params?.prompt?.[0]?.text ?? '');
  if (plan.everyMs > 0) await runPaced(plan, sessionId);
  else await runFull(plan, sessionId);
  return { stopReason: 'end_turn' };
}

let sessions = 0;

async function answer(request: Request): Promise<unknown> {
  switch (request.method ?? '') {
    case 'initialize':
      return { protocolVersion: 1, agentCapabilities: { loadSession: true }, authMethods: [] };
    case 'session/new':
      sessions += 1;
      return { sessionId: `bench-${process.pid}-${sessions}` };
    case 'session/load':
      return {};
    case 'session/prompt':
      return runScript(request);
    default:
      throw new Error(`unknown method ${request.method}`);
  }
}

async function serve(line: string): Promise<void> {
  const request = JSON.parse(line) as Request;
  if (request.id === undefined) return;
  const reply = await answer(request).then(
    (result) => ({ result }),
    (error: unknown) => ({ error: { code: -32601, message: String(error) } }),
  );
  await write(Buffer.from(`${JSON.stringify({ jsonrpc: '2.0', id: request.id, ...reply })}\n`));
}

createInterface({ input: process.stdin })
  .on('line', (line) => void serve(line))
  .on('close', () => process.exit(0));
