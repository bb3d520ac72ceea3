/** An outbox that keeps its messages instead of sending them: for a history that goes into one response. */
import '../../storage/latin1.ts';
import type { PumpOutbox } from '../session/pump.ts';

export interface CaptureOutbox extends PumpOutbox {
  messages(): readonly string[];
}

/** @param boundBytes what it holds before it is full */
export function captureOutbox(boundBytes: number): CaptureOutbox {
  const kept: string[] = [];
  let bytes = 0;
  let open = '';
  const keep = (wire: string): void => {
    kept.push(wire);
    bytes += wire.length;
  };
  return {
    get total() {
      return bytes;
    },
    get room() {
      return Math.max(0, boundBytes - bytes);
    },
    send: keep,
    begin: () => {
      open = '';
    },
    text: (wire) => {
      open += wire;
    },
    copy: (from, start, end) => {
      open += from.latin1Slice(start, end);
    },
    end: () => keep(open),
    messages: () => kept,
  };
}
