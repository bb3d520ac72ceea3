/** A log with a record that cannot be read: what the fold and the pump make of it. */
import { describe, expect, it } from 'vitest';
import { UPDATE_KINDS } from '../../../protocol/v1/update-kinds.ts';
import { captureOutbox } from '../../../proxy/client-methods/capture-outbox.ts';
import { Attachment } from '../../../proxy/session/attachment.ts';
import { foldLog } from '../../../proxy/session/open-session.ts';
import { pump, type PumpSource } from '../../../proxy/session/pump.ts';
import { envelopeOf } from '../../../proxy/session/render.ts';
import { encodeRecord, HEADER_BYTES } from '../../../storage/event-codec.ts';
import { MemoryEventLog } from '../../../storage/memory-event-log.ts';
import { openOrder } from '../../support/open-order.ts';
import { sessionRow } from '../../support/session-row.ts';

const VIEW = {
  sidecar: false,
  hidden: new Set<number>(),
  clientId: undefined,
  identity: undefined,
  children: false,
  booleanOptions: false,
};

function text(body: string): Buffer {
  const payload = `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"${body}"}}`;
  return encodeRecord(
    { type: 'update', time: 1, payload, meta: '{"a":1}' },
    { boot: 'b', kind: UPDATE_KINDS.agent_message_chunk },
  );
}

/** Three texts, the second of them changed. */
async function logWith(change: (record: Buffer) => void): Promise<MemoryEventLog> {
  const log = new MemoryEventLog();
  const records = ['one', 'two', 'three'].map(text);
  change(records[1] as Buffer);
  await log.commit({ appends: [{ num: 1, firstSeq: 1, records }], rows: [sessionRow(1)] });
  return log;
}

describe('opening a log', () => {
  it('[EV6] a text of a newer record version refuses the session', async () => {
    const folded = foldLog(await logWith((record) => (record[0] = 9)), sessionRow(1));
    expect(folded).toMatchObject({ error: { data: { kind: 'log_damaged', seq: 2 } } });
  });

  it('a text whose lengths do not add up refuses the session', async () => {
    const folded = foldLog(await logWith((record) => record.writeUInt32BE(1_000_000, 22)), sessionRow(1));
    expect(folded).toMatchObject({ error: { data: { kind: 'log_damaged', seq: 2 } } });
  });

  it('[EV8] a gap refuses the session, and is not skipped', async () => {
    const log = await logWith(() => undefined);
    log.remove(1, 2);
    const folded = foldLog(log, sessionRow(1));
    expect(folded).toMatchObject({ error: { code: -32603, data: { kind: 'log_damaged', seq: 2 } } });
  });

  it('intact texts are no reason', async () => {
    expect(foldLog(await logWith(() => undefined), sessionRow(1))).toMatchObject({ head: 3 });
  });
});

describe('pumping a log', () => {
  it('ends at a record that cannot be read and tells it once', async () => {
    const log = await logWith((record) => record.writeUInt32BE(1_000_000, HEADER_BYTES + 1));
    const order = openOrder('b', 3);
    const told: number[] = [];
    const source: PumpSource = {
      envelope: envelopeOf('s', 'abcdef'),
      boot: 'b',
      order,
      log,
      skips: () => false,
      ownsTerminal: () => false,
      damaged: (seq) => void told.push(seq),
    };
    const attachment = new Attachment({ seq: 0, offset: 0 }, VIEW);
    attachment.prefetched = Number.MAX_SAFE_INTEGER;
    const outbox = captureOutbox(1_000_000);
    expect(pump(source, attachment, outbox, 1_000_000, () => undefined)).toBe('damaged');
    expect(told).toEqual([2]);
    expect(attachment.position).toEqual({ seq: 1, offset: 0 });
    expect(outbox.messages()).toHaveLength(1);
    expect(pump(source, attachment, outbox, 1_000_000, () => undefined)).toBe('damaged');
  });
});
