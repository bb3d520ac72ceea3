/**
 * `acp-sidecar/storage`: reading a store, also while a server writes to it. Texts of records are wire text: JSON as
 * UTF-8 bytes with one character a byte; `decodeWire` makes an ordinary string of it.
 *
 *   const log = await openLmdbEventLogReadOnly(dir);
 *   for (const row of log.rows()) {
 *     log.scan(row.num, row.low, log.lastSeq(row.num), (seq, record, length) => {
 *       const event = decodeRecord(record, length, seq);
 *       return !('unreadable' in event);
 *     });
 *   }
 *   await log.close();
 */
export { decodeWire } from '../protocol/wire-text.ts';
export { type StoredEvent, type UnreadableRecord, decodeRecord } from './event-codec.ts';
export type { EventLog, RecordVisitor, ScanOutcome, SessionRow } from './event-log.ts';
export { openLmdbEventLogReadOnly } from './lmdb-event-log.ts';
export { type StoreErrorKind, StoreOpenError } from './store-error.ts';
