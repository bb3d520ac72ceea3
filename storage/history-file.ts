/**
 * A session's cached history on its medium: entries by ordinal, found by ordinal or by seq.
 *
 *    0  two slots of 64 bytes, the newer valid one counts:
 *       u32 magic, u32 generation, u48 offset, u32 length, u32 CRC-32 of the root, u32 CRC-32 of this slot
 *  128  blocks, only ever appended: entries (JSON), index pages of 256 locators, roots (JSON)
 *
 * A locator is `u48 offset, u32 length, u32 CRC-32, u48 seq, u32 hash of the entry's key`. The root names the index
 * pages with their checksums, the slot names the root: whatever is read hangs by checksums on one slot, so a file that
 * was cut off, scribbled over or put together from two versions is found out, and an older one that is whole is merely
 * behind. Nothing is flushed: the files go when the operating system's boot id changed.
 */
import { crc32 } from 'node:zlib';
import type { Medium } from './history-medium.ts';

/** Counts up when this layout or the entries' JSON changes; a file of another version is rebuilt. */
const LAYOUT_VERSION = 1;
const MAGIC = 0x61637068;
const SLOT_BYTES = 64;
const SLOT_CRC_AT = 22;
const BLOCKS_AT = 2 * SLOT_BYTES;
const LOCATOR_BYTES = 24;
const PAGE_LOCATORS = 256;
const PAGE_BYTES = PAGE_LOCATORS * LOCATOR_BYTES;
const MAX_ROOT_BYTES = 64 * 1024 * 1024;

/** What the entries were made of. All must fit, else the file is of no use. */
export interface HistoryIdentity {
  readonly reducer: number;
  readonly logId: string;
  /** First seq that went in. */
  readonly low: number;
}

/** How far the entries go. */
export interface HistoryMark {
  readonly lastSeq: number;
  /** CRC-32 of the record of `lastSeq`, to find out that the log is another one. */
  readonly lastCrc: number;
}

interface Root extends HistoryIdentity, HistoryMark {
  readonly layout: number;
  readonly entries: number;
  /** End of the blocks. */
  readonly end: number;
  /** Offset and CRC-32 of each index page. */
  readonly pages: readonly (readonly [number, number])[];
}

export interface Locator {
  readonly offset: number;
  readonly length: number;
  readonly crc: number;
  readonly seq: number;
  readonly hash: number;
}

export class HistoryFile {
  readonly #medium: Medium;
  readonly #identity: HistoryIdentity;
  #mark: HistoryMark;
  #index: Buffer;
  #entries = 0;
  #pages: (readonly [number, number])[] = [];
  readonly #dirtyPages = new Set<number>();
  #pending: Buffer[] = [];
  #end = BLOCKS_AT;
  #written = BLOCKS_AT;
  #generation = 0;

  private constructor(medium: Medium, identity: HistoryIdentity) {
    this.#medium = medium;
    this.#identity = identity;
    this.#mark = { lastSeq: identity.low - 1, lastCrc: 0 };
    this.#index = Buffer.alloc(PAGE_BYTES);
  }

  /** A history without entries on an empty medium. */
  static empty(medium: Medium, identity: HistoryIdentity): HistoryFile {
    return new HistoryFile(medium, identity);
  }

  /** The history that the medium holds; undefined when it holds none of this identity that is whole. */
  static load(medium: Medium, identity: HistoryIdentity): HistoryFile | undefined {
    const slot = readSlot(medium, 0);
    const other = readSlot(medium, 1);
    const newer = slot && other ? (other.generation > slot.generation ? other : slot) : (slot ?? other);
    const root = newer && readRoot(medium, newer);
    if (!newer || !root) return undefined;
    const { layout, reducer, logId, low, entries, pages } = root;
    if (layout !== LAYOUT_VERSION || reducer !== identity.reducer) return undefined;
    if (logId !== identity.logId || low !== identity.low) return undefined;
    const file = new HistoryFile(medium, identity);
    file.#index = Buffer.alloc(Math.max(1, pages.length) * PAGE_BYTES);
    for (const [i, [offset, crc]] of pages.entries()) {
      const page = medium.read(offset, PAGE_BYTES);
      if (!page || crc32(page) !== crc) return undefined;
      page.copy(file.#index, i * PAGE_BYTES);
    }
    file.#entries = entries;
    file.#pages = [...pages];
    file.#end = root.end;
    file.#written = root.end;
    file.#generation = newer.generation;
    file.#mark = { lastSeq: root.lastSeq, lastCrc: root.lastCrc };
    return file;
  }

  get mark(): HistoryMark {
    return this.#mark;
  }

  get entries(): number {
    return this.#entries;
  }

  /** Size of the file, superseded blocks included. */
  get bytes(): number {
    return this.#end;
  }

  get gone(): boolean {
    return this.#medium.gone;
  }

  locator(ordinal: number): Locator {
    const at = ordinal * LOCATOR_BYTES;
    const index = this.#index;
    return {
      offset: index.readUIntBE(at, 6),
      length: index.readUInt32BE(at + 6),
      crc: index.readUInt32BE(at + 10),
      seq: index.readUIntBE(at + 14, 6),
      hash: index.readUInt32BE(at + 20),
    };
  }

  /** How many entries began before `seq`. */
  entriesBefore(seq: number): number {
    let low = 0;
    let high = this.#entries;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#index.readUIntBE(middle * LOCATOR_BYTES + 14, 6) < seq) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** A committed entry's JSON; undefined when the medium no longer holds what was written. */
  read(ordinal: number): Buffer | undefined {
    const { offset, length, crc } = this.locator(ordinal);
    const bytes = this.#medium.read(offset, length);
    return bytes && crc32(bytes) === crc ? bytes : undefined;
  }

  /** Writes an entry, new (the next ordinal) or again. Readable after `commit`. */
  put(ordinal: number, seq: number, hash: number, json: Buffer): void {
    this.#entries = Math.max(this.#entries, ordinal + 1);
    const page = Math.floor(ordinal / PAGE_LOCATORS);
    if ((page + 1) * PAGE_BYTES > this.#index.length) {
      this.#index = Buffer.concat([this.#index, Buffer.alloc(Math.max(PAGE_BYTES, this.#index.length))]);
    }
    const at = ordinal * LOCATOR_BYTES;
    this.#index.writeUIntBE(this.#append(json), at, 6);
    this.#index.writeUInt32BE(json.length, at + 6);
    this.#index.writeUInt32BE(crc32(json), at + 10);
    this.#index.writeUIntBE(seq, at + 14, 6);
    this.#index.writeUInt32BE(hash, at + 20);
    this.#dirtyPages.add(page);
  }

  /** Makes everything up to `mark` readable. @throws when the medium cannot be written */
  commit(mark: HistoryMark): void {
    for (const page of [...this.#dirtyPages].toSorted((a, b) => a - b)) {
      const bytes = Buffer.from(this.#index.subarray(page * PAGE_BYTES, (page + 1) * PAGE_BYTES));
      this.#pages[page] = [this.#append(bytes), crc32(bytes)];
    }
    this.#dirtyPages.clear();
    const { reducer, logId, low } = this.#identity;
    const facts = { layout: LAYOUT_VERSION, reducer, logId, low, ...mark, entries: this.#entries };
    // The root is a block itself, its own end is told apart: what follows goes behind it.
    const unsized = { ...facts, pages: this.#pages, end: 0 };
    const room = JSON.stringify(unsized).length + 20;
    const offset = this.#end;
    const root = Buffer.from(JSON.stringify({ ...unsized, end: offset + room }).padEnd(room));
    this.#append(root);
    this.#medium.write(this.#written, Buffer.concat(this.#pending));
    this.#pending = [];
    this.#written = this.#end;
    this.#generation++;
    const slot = Buffer.alloc(SLOT_BYTES);
    slot.writeUInt32BE(MAGIC, 0);
    slot.writeUInt32BE(this.#generation, 4);
    slot.writeUIntBE(offset, 8, 6);
    slot.writeUInt32BE(root.length, 14);
    slot.writeUInt32BE(crc32(root), 18);
    slot.writeUInt32BE(crc32(slot.subarray(0, SLOT_CRC_AT)), SLOT_CRC_AT);
    this.#medium.write((this.#generation % 2) * SLOT_BYTES, slot);
    this.#mark = mark;
  }

  close(): void {
    this.#medium.close();
  }

  #append(bytes: Buffer): number {
    const at = this.#end;
    this.#pending.push(bytes);
    this.#end += bytes.length;
    return at;
  }
}

interface Slot {
  readonly generation: number;
  readonly offset: number;
  readonly length: number;
  readonly crc: number;
}

function readSlot(medium: Medium, which: 0 | 1): Slot | undefined {
  const slot = medium.read(which * SLOT_BYTES, SLOT_BYTES);
  if (!slot || slot.readUInt32BE(0) !== MAGIC) return undefined;
  if (crc32(slot.subarray(0, SLOT_CRC_AT)) !== slot.readUInt32BE(SLOT_CRC_AT)) return undefined;
  return {
    generation: slot.readUInt32BE(4),
    offset: slot.readUIntBE(8, 6),
    length: slot.readUInt32BE(14),
    crc: slot.readUInt32BE(18),
  };
}

function readRoot(medium: Medium, slot: Slot): Root | undefined {
  if (slot.length > MAX_ROOT_BYTES) return undefined;
  const bytes = medium.read(slot.offset, slot.length);
  if (!bytes || crc32(bytes) !== slot.crc) return undefined;
  try {
    return JSON.parse(bytes.toString()) as Root;
  } catch {
    return undefined;
  }
}
