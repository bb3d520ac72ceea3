/**
 * Why a store cannot be opened. The kinds are closed; the CLI turns them into exit codes.
 *
 * - `held`: another process has it (`pid` when it told it)
 * - `newer`: a newer version wrote it
 * - `damaged`: it is not a store, or not one any more
 * - `missing`: there is none, for a reader that must not make one
 * - `no_space`: too little room on the disk to open it safely
 * - `unsafe_path`: a symbolic link, or a directory of somebody else
 */
export type StoreErrorKind = 'held' | 'newer' | 'damaged' | 'missing' | 'no_space' | 'unsafe_path';

export class StoreOpenError extends Error {
  readonly kind: StoreErrorKind;
  readonly pid: number | undefined;

  constructor(kind: StoreErrorKind, message: string, pid?: number) {
    super(message);
    this.name = 'StoreOpenError';
    this.kind = kind;
    this.pid = pid;
  }
}
