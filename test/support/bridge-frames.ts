/**
 * The wire between a scripted agent's process and the test that plays it: frames of one type byte, a length (u32, little
 * endian) and a body. The agent's stdin and stdout cross it as raw bytes, so the test decides every byte.
 *
 * To the test: `H` hello (JSON), `I` stdin bytes, `Z` stdin ended, `S` a signal's name.
 * To the process: `O` stdout bytes, `E` stderr bytes, `Q` close stdout, `X` exit (code as text), `C` start a child that
 * sleeps, `G` ignore SIGTERM from now on.
 */
export type FrameType = 'H' | 'I' | 'Z' | 'S' | 'O' | 'E' | 'Q' | 'X' | 'C' | 'G';

const HEADER_BYTES = 5;

export function frameHeader(type: FrameType, length: number): Buffer {
  const header = Buffer.allocUnsafe(HEADER_BYTES);
  header.write(type, 0, 'latin1');
  header.writeUInt32LE(length, 1);
  return header;
}

/** Splits a byte stream into frames. Bodies may come in several pieces for `I` and `O`, which are streams themselves. */
export function frameReader(visit: (type: FrameType, body: Buffer) => void): (bytes: Buffer) => void {
  let pending: Buffer[] = [];
  let size = 0;
  let need = HEADER_BYTES;
  return (bytes) => {
    pending.push(bytes);
    size += bytes.length;
    if (size < need) return;
    let all = pending.length === 1 ? bytes : Buffer.concat(pending);
    while (all.length >= HEADER_BYTES) {
      const length = all.readUInt32LE(1);
      need = HEADER_BYTES + length;
      if (all.length < need) break;
      visit(all.toString('latin1', 0, 1) as FrameType, all.subarray(HEADER_BYTES, need));
      all = all.subarray(need);
      need = HEADER_BYTES;
    }
    pending = all.length > 0 ? [all] : [];
    size = all.length;
  };
}
