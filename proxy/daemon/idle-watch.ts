/** Ends a daemon that nobody needs: no client, no turn and no open approval for a while. */
export interface IdleFacts {
  /** True while there is a client, a turn or an approval. */
  needed(): boolean;
  now(): number;
  /** Called once. */
  idle(): void;
}

const LONGEST_LOOK_MS = 1000;

/** Returns how to stop watching. */
export function watchIdle(idleExitMs: number, facts: IdleFacts): () => void {
  let since = facts.now();
  const everyMs = Math.max(5, Math.min(LONGEST_LOOK_MS, idleExitMs / 4));
  const timer = setInterval(() => {
    const now = facts.now();
    if (facts.needed()) since = now;
    else if (now - since >= idleExitMs) {
      clearInterval(timer);
      facts.idle();
    }
  }, everyMs);
  timer.unref();
  return () => clearInterval(timer);
}
