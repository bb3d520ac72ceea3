export interface WaitOptions {
  readonly timeoutMs?: number;
  readonly intervalMs?: number;
}

/**
 * Polls until the condition gives something truthy and returns it. `what` completes the sentence "waited for ..." of the
 * failure; as a function it is asked at the time of the failure, so that it can tell what was there instead.
 */
export async function waitFor<T>(
  what: string | (() => string),
  condition: () => T | Promise<T>,
  { timeoutMs = 15_000, intervalMs = 5 }: WaitOptions = {},
): Promise<NonNullable<T>> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const found = await condition();
    if (found) return found;
    if (performance.now() > deadline) {
      throw new Error(`waited ${timeoutMs} ms for ${typeof what === 'string' ? what : what()}`);
    }
    await new Promise((resolve) => setTimeout(resolve, intervalMs));
  }
}

/** The promise, or a failure that says what did not come in time. */
export async function within<T>(what: string | (() => string), promise: Promise<T>, timeoutMs = 15_000): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => {
      reject(new Error(`waited ${timeoutMs} ms for ${typeof what === 'string' ? what : what()}`));
    }, timeoutMs);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
