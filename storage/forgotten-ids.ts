/**
 * The ids of sessions that were deleted long ago. Nothing else is left of those, but the agent may have its copies still,
 * and they stay hidden. An id is kept as the first 64 bits of its SHA-256; the hashes lie sorted in one block, on disk
 * as in memory, that is never changed once it is made:
 *
 *   u8 version | u32 CRC of what follows | u64 hash | u64 hash | ...
 *
 * Two ids with the same hash would hide one too many: with a million of them here, an id that never was ours is taken
 * for one of them once in 10^13 times.
 */
import { createHash } from 'node:crypto';
import { crc32 } from 'node:zlib';
import type { SessionRow } from './event-log.ts';

const VERSION = 1;
const CRC_AT = 1;
const HEAD_BYTES = 5;
const HASH_BYTES = 8;

export class ForgottenIds {
  static readonly NONE = new ForgottenIds(sealed([]));
  /** What is stored. Must not be changed. */
  readonly block: Buffer;

  private constructor(block: Buffer) {
    this.block = block;
  }

  /** @param block what was stored, undefined when nothing was */
  static read(block: Buffer | undefined): ForgottenIds | 'newer' | 'damaged' {
    if (!block) return ForgottenIds.NONE;
    if ((block[0] ?? 0) > VERSION) return 'newer';
    const whole = block.length >= HEAD_BYTES && (block.length - HEAD_BYTES) % HASH_BYTES === 0;
    const good = whole && block[0] === VERSION && block.readUInt32BE(CRC_AT) === crc32(block.subarray(HEAD_BYTES));
    return good ? new ForgottenIds(block) : 'damaged';
  }

  /** How many there are. */
  get size(): number {
    return (this.block.length - HEAD_BYTES) / HASH_BYTES;
  }

  has(id: string): boolean {
    if (this.size === 0) return false;
    const hash = hashOf(id);
    return this.#isAt(this.#place(hash), hash);
  }

  /** These and more; itself when there are no more. */
  with(ids: readonly string[]): ForgottenIds {
    const pieces: Buffer[] = [];
    let from = HEAD_BYTES;
    let last: Buffer | undefined;
    for (const hash of ids.map(hashOf).sort((a, b) => a.compare(b))) {
      const at = this.#place(hash);
      if (this.#isAt(at, hash) || last?.equals(hash)) continue;
      pieces.push(this.block.subarray(from, at), hash);
      from = at;
      last = hash;
    }
    if (pieces.length === 0) return this;
    pieces.push(this.block.subarray(from));
    return new ForgottenIds(sealed(pieces));
  }

  /** Where in the block the first hash is that is not below this one. */
  #place(hash: Buffer): number {
    let low = 0;
    let high = this.size;
    while (low < high) {
      const middle = (low + high) >>> 1;
      const at = HEAD_BYTES + middle * HASH_BYTES;
      if (this.block.compare(hash, 0, HASH_BYTES, at, at + HASH_BYTES) < 0) low = middle + 1;
      else high = middle;
    }
    return HEAD_BYTES + low * HASH_BYTES;
  }

  #isAt(at: number, hash: Buffer): boolean {
    return hash.equals(this.block.subarray(at, at + HASH_BYTES));
  }
}

/** The ids under which an agent's copy of a session is known. */
export function idsOf({ sessionId, bound }: SessionRow): string[] {
  return [sessionId, ...bound];
}

/**
 * The rows that a commit forgets.
 * @throws Error when one of them is not that of a deleted session
 */
export function tombstonesOf(
  row: (sessionId: string) => SessionRow | undefined,
  sessionIds: readonly string[] = [],
): SessionRow[] {
  return sessionIds.map((sessionId) => {
    const found = row(sessionId);
    if (!found?.tombstone) throw new Error(`session ${JSON.stringify(sessionId)} is not a deleted one`);
    return found;
  });
}

/** UTF-16 tells ids with a lone surrogate apart, which UTF-8 would not. */
function hashOf(id: string): Buffer {
  return createHash('sha256').update(id, 'utf16le').digest().subarray(0, HASH_BYTES);
}

function sealed(hashes: readonly Buffer[]): Buffer {
  const block = Buffer.concat([Buffer.alloc(HEAD_BYTES), ...hashes]);
  block[0] = VERSION;
  block.writeUInt32BE(crc32(block.subarray(HEAD_BYTES)), CRC_AT);
  return block;
}
