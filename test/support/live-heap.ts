/** What a running sidecar keeps: memory after everything that nobody needs any more was collected. */
import { WebSocket } from 'ws';
import { isObject } from '../../protocol/json-rpc.ts';
import type { Sidecar } from './sidecar.ts';
import { waitFor } from './wait-for.ts';

/** For the environment of a sidecar whose memory is asked for: its debugger takes any free port, and only when asked. */
export const DEBUGGABLE = { NODE_OPTIONS: '--inspect-port=0' };

export interface LiveHeap {
  readonly heapMiB: number;
  /** Buffers, and what C++ has for JavaScript. */
  readonly externalMiB: number;
}

/** A process says it once. */
const debuggers = new Map<number, string>();

async function debuggerOf(sidecar: Sidecar): Promise<string> {
  const { pid } = sidecar;
  const known = debuggers.get(pid);
  if (known !== undefined) return known;
  const before = sidecar.stderr.length;
  process.kill(pid, 'SIGUSR1');
  const url = await waitFor(
    'the debugger to listen',
    () => /Debugger listening on (ws:\S+)/.exec(sidecar.stderr.slice(before))?.[1],
  );
  debuggers.set(pid, url);
  return url;
}

const MEMORY = 'JSON.stringify(process.memoryUsage())';

export async function liveHeapOf(sidecar: Sidecar): Promise<LiveHeap> {
  const socket = new WebSocket(await debuggerOf(sidecar));
  const call = (id: number, method: string, params: object = {}): Promise<Record<string, unknown>> =>
    new Promise((resolve, reject) => {
      socket.on('message', (data: Buffer) => {
        const answer = JSON.parse(data.toString()) as { id?: number; result?: Record<string, unknown> };
        if (answer.id === id) resolve(answer.result ?? {});
      });
      socket.once('close', () => reject(new Error(`the debugger went away before it answered ${method}`)));
      socket.send(JSON.stringify({ id, method, params }));
    });
  try {
    await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
    // What finalizers let go of is collected the second time.
    await call(1, 'HeapProfiler.collectGarbage');
    await call(2, 'HeapProfiler.collectGarbage');
    const { result } = await call(3, 'Runtime.evaluate', { expression: MEMORY });
    const usage = JSON.parse(String(isObject(result) ? result['value'] : '')) as NodeJS.MemoryUsage;
    return { heapMiB: usage.heapUsed / 1024 / 1024, externalMiB: usage.external / 1024 / 1024 };
  } finally {
    socket.terminate();
  }
}
