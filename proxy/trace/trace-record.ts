/**
 * The file of `--trace`: one JSON object a line.
 *
 *   {"trace":1,"version":"0.1.0","time":1764500000000,"pid":12,"part":1}           first line of each file
 *   {"time":...,"peer":"agent","id":1,"event":"started"}                           id: which process, from 1
 *   {"time":...,"peer":"agent","id":1,"to":"agent","message":{"jsonrpc":...}}
 *   {"time":...,"peer":"agent","id":1,"to":"sidecar","message":{"jsonrpc":...}}
 *   {"time":...,"peer":"client","id":4,"to":"sidecar","message":{...}}             id: which connection
 *   {"time":...,"peer":"client","id":4,"to":"client","raw":"not JSON"}
 *   {"time":...,"peer":"client","id":4,"event":"closed"}
 *
 * `message` is the peer's JSON text itself, apart from what was redacted. `part` counts the files: when one is full it is
 * renamed to FILE.1, in place of the one before, and the next is begun.
 */
export interface TraceHeader {
  readonly trace: 1;
  readonly version: string;
  /** Milliseconds since 1970. */
  readonly time: number;
  readonly pid: number;
  readonly part: number;
}

export type Peer = 'agent' | 'client';

interface Base {
  readonly time: number;
  readonly peer: Peer;
  readonly id: number;
}

export interface TracedMessage extends Base {
  readonly to: 'agent' | 'client' | 'sidecar';
  /** Parsed; undefined when it was no JSON. */
  readonly message?: unknown;
  readonly raw?: string;
}

export interface TracedEvent extends Base {
  readonly event: 'started' | 'exited' | 'opened' | 'closed';
}

export type TraceRecord = TracedMessage | TracedEvent;

export const TRACE_VERSION = 1;
