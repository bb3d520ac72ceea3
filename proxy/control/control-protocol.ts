/**
 * What goes over the control socket: one request, then lines of output, then the end; each a line of JSON.
 *
 *   -> {"command":"delete","sessionId":"..."}
 *   <- {"line":"..."} ...            for stdout
 *   <- {"done":true} | {"error":{"reason":"failure","message":"...","hint":"..."}}
 */
import type { Retention } from '../../storage/prune.ts';
import type { ExitReason } from '../cli/exit-code.ts';

export type ControlRequest =
  | { readonly command: 'status' }
  | { readonly command: 'stop' }
  /** Ends a daemon that is older than `version` and has nothing to do; it says nothing of whether it did. */
  | { readonly command: 'retire'; readonly version: string }
  /** Listens on another Unix socket, too. */
  | { readonly command: 'listen'; readonly path: string }
  /** Is the session open in the server? Prints true or false. */
  | { readonly command: 'opened'; readonly sessionId: string }
  | { readonly command: 'import'; readonly file: string; readonly sessionId?: string | undefined }
  | { readonly command: 'delete'; readonly sessionId: string }
  | { readonly command: 'repair'; readonly sessionId: string; readonly json: boolean }
  | { readonly command: 'fork'; readonly sessionId: string; readonly atEventId?: string | undefined }
  | {
      readonly command: 'prune';
      readonly sessionId?: string | undefined;
      readonly dryRun: boolean;
      readonly json: boolean;
      readonly retention: Retention;
    }
  | { readonly command: 'backup'; readonly dir: string };

export type ControlReply =
  | { readonly line: string }
  | { readonly done: true }
  | { readonly error: { readonly reason: ExitReason; readonly message: string; readonly hint?: string | undefined } };

/** Takes a line for stdout, ordinary text. */
export type Print = (line: string) => void;
