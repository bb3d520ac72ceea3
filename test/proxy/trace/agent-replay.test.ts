import { describe, expect, it } from 'vitest';
import { AgentReplay } from '../../../proxy/trace/agent-replay.ts';
import type { TraceLine } from '../../../proxy/trace/read-trace.ts';

type Entry = readonly ['>' | '<', object];

/** `>`: to the agent, `<`: from it. */
function trace(entries: readonly Entry[]): TraceLine[] {
  return entries.map(([direction, message], at) => ({
    time: at * 10,
    peer: 'agent',
    id: 1,
    to: direction === '>' ? 'agent' : 'sidecar',
    wire: JSON.stringify({ jsonrpc: '2.0', ...message }),
  }));
}

function player(
  entries: readonly Entry[],
  pauses?: number[],
): { replay: AgentReplay; wrote: unknown[]; notes: string[] } {
  const wrote: unknown[] = [];
  const notes: string[] = [];
  const replay = new AgentReplay(trace(entries), 1, {
    write: async (wire) => {
      const { jsonrpc: _, ...message } = JSON.parse(wire) as { jsonrpc: string };
      wrote.push(message);
      return Promise.resolve();
    },
    note: (text) => notes.push(text),
    ...(pauses && {
      pause: async (ms: number) => {
        pauses.push(ms);
        return Promise.resolve();
      },
    }),
  });
  return { replay, wrote, notes };
}

const send = (replay: AgentReplay, message: object): Promise<void> =>
  replay.receive(JSON.stringify({ jsonrpc: '2.0', ...message }));

const HELLO: readonly Entry[] = [
  ['>', { id: 1, method: 'initialize', params: {} }],
  ['<', { id: 1, result: { v: 1 } }],
];

describe('an agent out of a trace', () => {
  it('answers with the id of now', async () => {
    const { replay, wrote } = player(HELLO);
    await send(replay, { id: 'other', method: 'initialize', params: { anything: true } });
    expect(wrote).toEqual([{ id: 'other', result: { v: 1 } }]);
    expect(replay.done).toBe(true);
  });

  it('says first what the agent said unasked', async () => {
    const { replay, wrote } = player([['<', { method: '_hello', params: {} }], ...HELLO]);
    await replay.play();
    expect(wrote).toEqual([{ method: '_hello', params: {} }]);
  });

  it('waits for the answer to its own request before it goes on', async () => {
    const { replay, wrote, notes } = player([
      ['>', { id: 1, method: 'session/prompt', params: { sessionId: 's' } }],
      ['<', { id: 'q', method: 'fs/read_text_file', params: { sessionId: 's' } }],
      ['>', { id: 'q', result: { content: 'then' } }],
      ['<', { id: 1, result: {} }],
    ]);
    await send(replay, { id: 9, method: 'session/prompt', params: { sessionId: 's' } });
    expect(wrote).toHaveLength(1);
    expect(notes.at(-1)).toBe('step 3 of 4: waits for the answer to "q"');
    await send(replay, { id: 'q', result: { content: 'now' } });
    expect(wrote.at(-1)).toEqual({ id: 9, result: {} });
  });

  it('keeps what comes early for its time, and tells sessions apart', async () => {
    const { replay, wrote } = player([
      ['>', { id: 1, method: 'session/prompt', params: { sessionId: 'a' } }],
      ['<', { id: 1, result: { for: 'a' } }],
      ['>', { id: 2, method: 'session/prompt', params: { sessionId: 'b' } }],
      ['<', { id: 2, result: { for: 'b' } }],
    ]);
    await send(replay, { id: 7, method: 'session/prompt', params: { sessionId: 'b' } });
    expect(wrote).toEqual([]);
    await send(replay, { id: 8, method: 'session/prompt', params: { sessionId: 'a' } });
    expect(wrote).toEqual([
      { id: 8, result: { for: 'a' } },
      { id: 7, result: { for: 'b' } },
    ]);
  });

  it('refuses what the trace does not have, or not once more, and ignores other notifications', async () => {
    const { replay, wrote } = player(HELLO);
    await send(replay, { id: 1, method: 'session/fork', params: {} });
    await send(replay, { method: '_note', params: {} });
    await send(replay, { id: 2, method: 'initialize', params: {} });
    await send(replay, { id: 3, method: 'initialize', params: {} });
    await replay.receive('no JSON');
    expect(wrote).toMatchObject([
      { id: 1, error: { code: -32601 } },
      { id: 2, result: { v: 1 } },
      { id: 3, error: { code: -32601 } },
    ]);
  });

  it('leaves out an answer to a request that the trace has lost', async () => {
    const { replay, wrote } = player([
      ['<', { id: 4, result: {} }],
      ['<', { method: 'x', params: {} }],
    ]);
    await replay.play();
    expect(wrote).toEqual([{ method: 'x', params: {} }]);
  });

  it('keeps the pauses when asked', async () => {
    const pauses: number[] = [];
    const { replay } = player([...HELLO, ['<', { method: 'x', params: {} }]], pauses);
    await send(replay, { id: 1, method: 'initialize', params: {} });
    expect(pauses).toEqual([10, 10]);
  });

  it('plays one process of the agent', () => {
    const entries = [...trace(HELLO), { time: 99, peer: 'agent' as const, id: 2, to: 'sidecar' as const, wire: '{}' }];
    const options = { write: () => Promise.resolve(), note: () => undefined };
    expect(new AgentReplay(entries, 1, options).length).toBe(2);
    expect(new AgentReplay(entries, 3, options).length).toBe(0);
  });
});
