/** How every command of the CLI ends. README.md lists the same table; a test compares them. */
export const EXIT_CODES = {
  ok: { code: 0, meaning: 'done' },
  failure: { code: 1, meaning: 'failure, for example an unknown session' },
  usage: { code: 2, meaning: 'usage: an option or the configuration is wrong' },
  store_in_use: { code: 3, meaning: 'the store is in use by another sidecar' },
  store_failed: {
    code: 4,
    meaning: 'the store is damaged, failed, cannot be written, or was written by a newer version',
  },
  agent_failed: { code: 5, meaning: 'the agent cannot be run: there is no such command, or it is not executable' },
} as const;

export type ExitReason = keyof typeof EXIT_CODES;

export function exitCode(reason: ExitReason): number {
  return EXIT_CODES[reason].code;
}

/** Ends a command with a message for people and an exit code. `hint` says what to do. */
export class CommandError extends Error {
  readonly reason: ExitReason;
  readonly hint: string | undefined;

  constructor(reason: ExitReason, message: string, hint?: string) {
    super(message);
    this.name = 'CommandError';
    this.reason = reason;
    this.hint = hint;
  }
}
