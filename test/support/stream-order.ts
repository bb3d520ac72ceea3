/** What the standalone agent is told to do, as JSON in the first text block of a prompt. */
export interface StreamOrder {
  readonly label: string;
  readonly chunks: number;
  /** 0 or absent: no tool calls. */
  readonly toolEvery?: number;
  /** Chunks written at once. */
  readonly batch?: number;
  /** Pause between batches, in milliseconds. 0: as fast as the pipe takes it. */
  readonly everyMs?: number;
}

/** The text that an order makes, whole. */
export function streamText(order: StreamOrder): string {
  let text = '';
  for (let i = 0; i < order.chunks; i++) text += `${order.label}${i};`;
  return text;
}
