/**
 * The sidecar's own log: JSON lines on stderr, written synchronously so that the last line before an exit is there.
 * It holds ids, counts and causes. What people and agents say to each other is never logged: pass no message text,
 * params or results.
 */
import { type Logger as PinoLogger, pino } from 'pino';
import type { LogLevel } from './options.ts';

export type Logger = Pick<PinoLogger, 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'level'> & {
  child(bindings: Readonly<Record<string, unknown>>): Logger;
};

/** `fd` is stderr unless a test says otherwise. */
export function createLogger(level: LogLevel, fd = 2): Logger {
  return pino({ level, base: { pid: process.pid } }, pino.destination({ dest: fd, sync: true }));
}

/** For tests and tools that want none. */
export function silentLogger(): Logger {
  return pino({ level: 'silent' });
}
