/**
 * Why a store cannot be opened. The kinds are closed; the CLI turns them into exit codes.
 *
 * - `held`: another process has it (`pid` when it told it)
 * - `newer`: a newer version wrote it
 * - `damaged`: it is not a store, or not one any more
 * - `missing`: there is none, for a reader that must not make one
 * - `busy`: so many processes read it that its owner keeps no more pages for another
 * - `no_space`: too little room on the disk to open it safely
 * - `unsafe_path`: a symbolic link, or a directory of somebody else
 * - `unusable`: the operating system does not let it be made or written
 */
export type StoreErrorKind =
  | 'held'
  | 'newer'
  | 'damaged'
  | 'missing'
  | 'busy'
  | 'no_space'
  | 'unsafe_path'
  | 'unusable';

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

/** What the operating system says about a place that is to be written, as a `StoreOpenError`; other errors unchanged. */
export function unusable(place: string, error: unknown): unknown {
  if (error instanceof StoreOpenError || !(error instanceof Error)) return error;
  if (isDamage(error)) return new StoreOpenError('damaged', `${place} is damaged: ${error.message}`);
  // LMDB tells its errors by their text.
  if (!('syscall' in error) && !/Permission denied|Read-only file system/.test(error.message)) return error;
  return new StoreOpenError('unusable', `${place} cannot be written: ${error.message}`);
}

/** What LMDB says when its pages lead nowhere. Other ends of such a file are a SIGBUS, which nobody can catch. */
export function isDamage(error: unknown): boolean {
  return error instanceof Error && /^MDB_(?!MAP_FULL|READERS_FULL|TXN_FULL)/.test(error.message);
}
