import { onTestFinished } from 'vitest';
import { Order } from '../../proxy/session/order.ts';

/** The order of session 1, which nobody commits for. @param head the last event that its log has */
export function openOrder(boot: string, head: number): Order {
  const order = new Order({
    num: 1,
    head,
    boot,
    now: Date.now,
    backlog: { bytes: 0 },
    touched: () => undefined,
    stalled: () => undefined,
    movedUp: () => undefined,
  });
  onTestFinished(() => order.close());
  return order;
}
