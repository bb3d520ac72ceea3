/** Where a run of text ends, and which one is unsettled: an order whose commits are made by hand. */
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { UPDATE_KINDS } from '../../../protocol/v1/update-kinds.ts';
import { parseWire } from '../../../protocol/wire-text.ts';
import type { Order } from '../../../proxy/session/order.ts';
import type { TextShape } from '../../../proxy/session/run.ts';
import { decodeRecord } from '../../../storage/event-codec.ts';
import { at } from '../../support/json.ts';
import { openOrder } from '../../support/open-order.ts';

const KIB = 1024;

function message(messageId: string): TextShape {
  return {
    kind: UPDATE_KINDS.agent_message_chunk,
    key: messageId,
    prefix: `{"sessionUpdate":"agent_message_chunk","messageId":"${messageId}","content":{"type":"text","text":"`,
    suffix: '"}}',
  };
}

const A = message('a');
const B = message('b');

/** Of the events that wait for their commit: their text, else their kind. */
function waiting(order: Order): unknown[] {
  return order.peek(1000, 10_000 * KIB).map((record, i) => {
    const event = decodeRecord(record, record.length, order.head + 1 + i);
    const update = 'unreadable' in event ? undefined : parseWire(event.payload);
    return at(update, 'content', 'text') ?? at(update, 'sessionUpdate');
  });
}

function commitOne(order: Order): void {
  order.settled({ outcome: 'committed' }, 1);
  order.published();
}

describe('a run', () => {
  it('[RN2] ends when another message or another event arrives', () => {
    const order = openOrder('boot00', 0);
    for (const [shape, text] of [
      [A, 'a '],
      [A, 'and a'],
      [B, 'b'],
    ] as const)
      order.text(shape, text, undefined);
    expect(waiting(order)).toEqual(['a and a']);
    order.append({ type: 'update', time: 1, payload: '{"sessionUpdate":"plan"}' });
    expect(waiting(order)).toEqual(['a and a', 'b', 'plan']);
    expect(order.openRun).toBeUndefined();
  });

  it('[RN2] ends behind the chunk with which it reaches 64 KiB', () => {
    const order = openOrder('boot00', 0);
    const chunk = 'x'.repeat(1000);
    let sent = 0;
    while (waiting(order).length === 0) {
      expect(sent).toBeLessThan(64 * KIB);
      order.text(A, chunk, undefined);
      sent += chunk.length;
    }
    expect(sent).toBeGreaterThanOrEqual(64 * KIB);
    expect(waiting(order)).toEqual([chunk.repeat(sent / chunk.length)]);
    order.text(A, 'y'.repeat(100 * KIB), undefined);
    order.text(A, 'z', undefined);
    expect(waiting(order)[1]).toBe('y'.repeat(100 * KIB));
    expect(order.openRun?.text).toBe('z');
  });

  it('[RN2] ends 5 s after its first chunk, whatever came since and whenever the last one ended', () => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    const order = openOrder('boot00', 0);
    order.text(A, 'first', undefined);
    vi.advanceTimersByTime(3000);
    order.text(B, 'sec', undefined);
    vi.advanceTimersByTime(4999);
    order.text(B, 'ond', undefined);
    expect(waiting(order)).toEqual(['first']);
    vi.advanceTimersByTime(1);
    expect(waiting(order)).toEqual(['first', 'second']);
    expect(order.openRun).toBeUndefined();
  });

  it('[RN4] is one at a time that clients see, and it becomes the event after the last one', () => {
    const order = openOrder('boot00', 0);
    order.text(A, 'aa', undefined);
    expect([order.front?.text, order.tip]).toEqual(['aa', { seq: 0, offset: 2 }]);
    order.text(B, 'b', undefined);
    // It has ended, but is no event yet: what comes behind it waits.
    expect([order.front?.text, order.tip]).toEqual(['aa', { seq: 0, offset: 2 }]);
    expect(waiting(order)).toEqual(['aa']);
    commitOne(order);
    expect([order.head, order.front?.text, order.tip]).toEqual([1, 'b', { seq: 1, offset: 1 }]);
    order.closeRun();
    commitOne(order);
    expect([order.head, order.front, order.tip]).toEqual([2, undefined, { seq: 2, offset: 0 }]);
  });
});
