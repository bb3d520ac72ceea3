/**
 * The sidecar's own log: JSON lines on stderr, written synchronously so that the last line before an exit is there.
 * It holds ids (`sessionId`, `clientId`, `connection`, `turnId`, `eventId`, `approvalId`), counts and causes. What people
 * and agents say to each other is never logged: pass no message text, params or results. The one exception is what the
 * agent writes to its stderr, which is its log; `--redact` is for that.
 */
import { type Logger as PinoLogger, pino } from 'pino';
import type { LogLevel } from './options.ts';
import { redactJson } from './redact.ts';

export type Logger = Pick<PinoLogger, 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'level'> & {
  child(bindings: Readonly<Record<string, unknown>>): Logger;
};

export interface LoggerOptions {
  /** What these match is taken out of every string of a line; global. */
  readonly redact?: readonly RegExp[];
  /** stderr unless a test says otherwise. */
  readonly fd?: number;
}

export function createLogger(level: LogLevel, { redact = [], fd = 2 }: LoggerOptions = {}): Logger {
  const stream = pino.destination({ dest: fd, sync: true });
  // A terminal that is gone is no reason to end.
  stream.on('error', () => undefined);
  const clean = { write: (line: string): void => void stream.write(redactJson(line, redact)) };
  return pino({ level, base: { pid: process.pid } }, redact.length === 0 ? stream : clean);
}

/** For tests and tools that want none. */
export function silentLogger(): Logger {
  return pino({ level: 'silent' });
}
