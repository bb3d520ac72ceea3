/** The databases of a store, opened with the options that the rules of `lmdb-event-log.ts` ask for, and their rows. */
import { type Database, type GetOptions, open, type RootDatabase } from 'lmdb';
import type { SessionRow } from './event-log.ts';
import { sessionKey } from './log-keys.ts';
import { StoreOpenError } from './store-error.ts';

export interface EventsDatabase extends Database<Buffer, Buffer> {
  /** LMDB's own buffer, overwritten by the next read. The options are missing in the package's types. */
  getBinaryFast(key: Buffer, options?: GetOptions): Buffer | undefined;
}

export interface Databases {
  readonly root: RootDatabase<Buffer, Buffer>;
  readonly events: EventsDatabase;
  readonly sessions: Database<Buffer, Buffer>;
  readonly meta: Database<Buffer, Buffer>;
}

export function openDatabases(path: string, readOnly: boolean): Databases {
  const root = open<Buffer, Buffer>({
    path,
    // LMDB would take a directory with a dot in its name for a file.
    noSubdir: false,
    encoding: 'binary',
    keyEncoding: 'binary',
    overlappingSync: false,
    eventTurnBatching: false,
    maxDbs: 8,
    maxReaders: 64,
    cache: false,
    compression: false,
    readOnly,
  });
  const database = (name: string): Database<Buffer, Buffer> => {
    // Undefined when a reader finds that it does not exist, whatever the types say.
    const opened = root.openDB<Buffer, Buffer>(name, { encoding: 'binary', keyEncoding: 'binary' }) as
      | Database<Buffer, Buffer>
      | undefined;
    if (!opened) throw new StoreOpenError('damaged', `${path} has no database "${name}"`);
    return opened;
  };
  try {
    return {
      root,
      events: database('events'),
      sessions: database('sessions'),
      meta: database('meta'),
    };
  } catch (error) {
    void root.close();
    throw error;
  }
}

/**
 * An entry of `sessions`.
 * @throws StoreOpenError `damaged`
 */
export function parseRow(dir: string, key: Buffer, value: Buffer): SessionRow {
  try {
    const row = JSON.parse(value.toString()) as SessionRow;
    if (sessionKey(row.sessionId).equals(key)) return row;
  } catch {
    // Said below.
  }
  throw new StoreOpenError(
    'damaged',
    `${dir}: the index row of session ${JSON.stringify(key.toString())} cannot be read`,
  );
}
