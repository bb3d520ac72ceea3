/**
 * An agent for fault injection. It plays one turn with a tool and an approval for each prompt, writes down what it got
 * and said before it does so, and ends itself or the sidecar at the n-th line that it reads or writes.
 *
 *   FAULT_AGENT_FILE    `<in|out> <n> <agent|sidecar>`, read and removed by the next process
 *   FAULT_AGENT_DIARY   a line of JSON for everything that happened: {"prompt":...}, {"said":...}, {"ran":...}
 */
import { appendFileSync, existsSync, readFileSync, unlinkSync } from 'node:fs';
import { isObject } from '../../protocol/json-rpc.ts';
import { lineSplitter } from './line-splitter.ts';

type Json = Record<string, unknown>;

const [side, at, victim] = takeFault();
const counts = { in: 0, out: 0 };
let turns = 0;

function takeFault(): [side: string, at: number, victim: string] {
  const file = process.env['FAULT_AGENT_FILE'] ?? '';
  if (!existsSync(file)) return ['', 0, ''];
  const [which = '', n = '0', who = ''] = readFileSync(file, 'utf8').trim().split(' ');
  unlinkSync(file);
  return [which, Number(n), who];
}

function strike(where: 'in' | 'out'): void {
  if (++counts[where] !== at || side !== where) return;
  process.kill(victim === 'agent' ? process.pid : process.ppid, 'SIGKILL');
}

function diary(entry: Json): void {
  appendFileSync(process.env['FAULT_AGENT_DIARY'] ?? '/dev/null', `${JSON.stringify(entry)}\n`);
}

function send(message: Json): void {
  strike('out');
  process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
}

function update(sessionId: unknown, value: Json): void {
  send({ method: 'session/update', params: { sessionId, update: value } });
}

function say(sessionId: unknown, prompt: string, text: string): void {
  diary({ said: text, prompt });
  update(sessionId, { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } });
}

/** What goes on when the approval of a call is answered. */
const waiting = new Map<string, (outcome: Json) => void>();

function play(id: unknown, sessionId: unknown, prompt: string): void {
  const turn = `${process.pid}-${turns++}`;
  const toolCallId = `tool-${turn}`;
  diary({ prompt, toolCallId });
  for (const word of ['I ', 'look ', 'into ', prompt]) say(sessionId, prompt, word);
  update(sessionId, { sessionUpdate: 'tool_call', toolCallId, title: prompt, status: 'pending' });
  const options = [
    { optionId: 'yes', name: 'Yes', kind: 'allow_once' },
    { optionId: 'no', name: 'No', kind: 'reject_once' },
  ];
  const question = `ask-${turn}`;
  waiting.set(question, (outcome) => {
    if (outcome['optionId'] === 'yes') {
      update(sessionId, { sessionUpdate: 'tool_call_update', toolCallId, status: 'in_progress' });
      diary({ ran: toolCallId });
      update(sessionId, { sessionUpdate: 'tool_call_update', toolCallId, status: 'completed' });
    } else update(sessionId, { sessionUpdate: 'tool_call_update', toolCallId, status: 'failed' });
    say(sessionId, prompt, ' and am done with it');
    diary({ ended: prompt });
    send({ id, result: { stopReason: 'end_turn' } });
  });
  send({
    id: question,
    method: 'session/request_permission',
    params: { sessionId, toolCall: { toolCallId }, options },
  });
}

function receive(line: string): void {
  strike('in');
  const message = JSON.parse(line) as Json;
  const { id, method } = message;
  const params = isObject(message['params']) ? message['params'] : {};
  const answer = typeof id === 'string' ? waiting.get(id) : undefined;
  if (method === undefined && answer) {
    const result = isObject(message['result']) ? message['result'] : {};
    answer(isObject(result['outcome']) ? { ...result['outcome'] } : {});
  } else if (method === 'initialize') {
    send({ id, result: { protocolVersion: 1, agentCapabilities: { sessionCapabilities: { resume: {} } } } });
  } else if (method === 'session/new') send({ id, result: { sessionId: `s-${process.pid}` } });
  else if (method === 'session/resume') send({ id, result: {} });
  else if (method === 'session/prompt') {
    const blocks = params['prompt'] as { text: string }[];
    play(id, params['sessionId'], blocks.at(-1)?.text ?? '');
  } else if (id !== undefined) send({ id, error: { code: -32601, message: 'no such method' } });
}

export function runFaultAgent(): void {
  const split = lineSplitter(receive);
  process.stdin.on('data', (bytes: Buffer) => split(bytes));
  process.stdin.on('end', () => process.exit(0));
}
