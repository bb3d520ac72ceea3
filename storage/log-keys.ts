/** Keys on disk. Byte order is the order of the log. */

/** u32 session number, u48 seq, both big endian. */
export const EVENT_KEY_BYTES = 10;
export const MAX_SEQ = 2 ** 48 - 1;
export const MAX_SESSION_ID_CHARS = 512;

const UTF16_MARK = 0xff;
// Without the u flag this would also match the halves of proper pairs.
const LONE_SURROGATE = /\p{Surrogate}/u;
const CONTROL = /[\x00-\x1f\x7f]/;

export function eventKey(num: number, seq: number): Buffer {
  const key = Buffer.allocUnsafe(EVENT_KEY_BYTES);
  key.writeUInt32BE(num, 0);
  writeSeq(key, seq);
  return key;
}

/** Puts `seq` into an event key that already holds its session number. */
export function writeSeq(key: Buffer, seq: number): void {
  key.writeUInt16BE(Math.floor(seq / 0x100000000), 4);
  key.writeUInt32BE(seq % 0x100000000, 6);
}

export function numOfKey(key: Buffer): number {
  return key.readUInt32BE(0);
}

export function seqOfKey(key: Buffer): number {
  return key.readUIntBE(4, 6);
}

/** May this be a session's public id? 1 to 512 characters, none of them a control character. */
export function isSessionId(id: unknown): id is string {
  return typeof id === 'string' && id.length > 0 && id.length <= MAX_SESSION_ID_CHARS && !CONTROL.test(id);
}

/**
 * The key of a session's row: its id in UTF-8, at most 1536 bytes. A lone surrogate has no UTF-8 and two ids would
 * become one, so such an id is kept as UTF-16 after a byte that UTF-8 never has.
 * @throws RangeError when it cannot be a session id
 */
export function sessionKey(sessionId: string): Buffer {
  if (!isSessionId(sessionId)) throw new RangeError('a session id has 1 to 512 characters and no control characters');
  if (!LONE_SURROGATE.test(sessionId)) return Buffer.from(sessionId, 'utf8');
  return Buffer.concat([Buffer.of(UTF16_MARK), Buffer.from(sessionId, 'utf16le')]);
}
