/** The messages in a page of an outbox, which holds whole frames only. */
import '../../storage/latin1.ts';
import type { Framing } from '../transport/outbox.ts';

/** Wire text of each message: of unmasked text frames of a WebSocket, or of lines. */
export function framesOf(page: Buffer, framing: Framing): string[] {
  if (framing === 'lines') {
    return page
      .latin1Slice()
      .split('\n')
      .filter((line) => line !== '');
  }
  const messages: string[] = [];
  let at = 0;
  while (at + 2 <= page.length) {
    const short = (page[at + 1] as number) & 0x7f;
    const head = short < 126 ? 2 : short === 126 ? 4 : 10;
    const length =
      short < 126 ? short : short === 126 ? page.readUInt16BE(at + 2) : Number(page.readBigUInt64BE(at + 2));
    messages.push(page.latin1Slice(at + head, at + head + length));
    at += head + length;
  }
  return messages;
}
