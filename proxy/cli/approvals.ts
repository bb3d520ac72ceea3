/** `acp-sidecar approvals [ID]`: what agents wait for, over all sessions of a store or in one. */
import { EVENT_TYPES } from '../../protocol/event.ts';
import { settledId } from '../../protocol/event-id.ts';
import { isObject } from '../../protocol/json-rpc.ts';
import { decodeWire, parseWire, stringifyWire, valueAt } from '../../protocol/wire-text.ts';
import { decodeRecord, type StoredEvent, typeCode } from '../../storage/event-codec.ts';
import type { EventLog, SessionRow } from '../../storage/event-log.ts';
import { isOpened } from './cold-tail.ts';
import { flushed, printTable, printText, printWire, requireSession, withStore } from './read-store.ts';

const APPROVALS = new Set<number>([
  EVENT_TYPES.approval_requested,
  EVENT_TYPES.approval_reopened,
  EVENT_TYPES.approval_resolved,
  EVENT_TYPES.approval_interrupted,
]);

export async function listApprovals(storeDir: string, sessionId: string, json: boolean): Promise<void> {
  await withStore(storeDir, async (log) => {
    const rows = sessionId === '' ? [...log.rows()].filter((row) => !row.tombstone) : [requireSession(log, sessionId)];
    const open: { row: SessionRow; event: StoredEvent; alive: boolean }[] = [];
    for (const row of rows) {
      const events = openApprovals(log, row);
      // Nobody waits any more in a session that no server has open: opening it will record that.
      const alive = events.length > 0 && (await isOpened(storeDir, row.sessionId));
      open.push(...events.map((event) => ({ row, event, alive })));
    }
    if (json) {
      printWire(`[${open.map(({ row, event, alive }) => approvalJson(row, event, alive)).join(',')}]`);
    } else if (open.length === 0) {
      printText('no pending approvals');
    } else {
      const cells = open.map(({ row, event, alive }) => [
        idOf(event),
        row.sessionId,
        new Date(event.time).toISOString(),
        stateOf(event, alive),
        titleOf(event),
      ]);
      printTable([['APPROVAL', 'SESSION', 'ASKED', 'STATE', 'WHAT'], ...cells]);
    }
    await flushed();
  });
}

/** The events that opened what nobody has answered yet, oldest first. */
function openApprovals(log: EventLog, row: SessionRow): StoredEvent[] {
  const open = new Map<string, StoredEvent>();
  log.scan(row.num, row.low, log.lastSeq(row.num), (seq, record, length) => {
    if (!APPROVALS.has(typeCode(record))) return true;
    const event = decodeRecord(record, length, seq);
    if ('unreadable' in event) return true;
    const id = idOf(event);
    open.delete(id);
    if (event.type === 'approval_requested' || event.type === 'approval_reopened') open.set(id, event);
    return true;
  });
  return [...open.values()];
}

function idOf(event: StoredEvent): string {
  return (parseWire(valueAt(event.payload, ['approvalId']) ?? '""') as string) || '?';
}

function stateOf(event: StoredEvent, alive: boolean): 'pending' | 'reopened' | 'interrupted' {
  if (!alive) return 'interrupted';
  return event.type === 'approval_reopened' ? 'reopened' : 'pending';
}

function titleOf(event: StoredEvent): string {
  const params = parseWire(valueAt(event.payload, ['params']) ?? '{}');
  if (!isObject(params)) return '';
  const { toolCall, message } = params;
  if (typeof message === 'string') return message;
  return isObject(toolCall) && typeof toolCall['title'] === 'string' ? toolCall['title'] : '';
}

function approvalJson(row: SessionRow, event: StoredEvent, alive: boolean): string {
  const facts = {
    approvalId: idOf(event),
    sessionId: row.sessionId,
    eventId: settledId(row.logId, event.seq),
    time: new Date(event.time).toISOString(),
    state: stateOf(event, alive),
    turnId: event.turnId === undefined ? undefined : decodeWire(event.turnId),
    toolCallId: event.toolCallId === undefined ? undefined : decodeWire(event.toolCallId),
    method: parseWire(valueAt(event.payload, ['method']) ?? '""'),
  };
  return `${stringifyWire(facts).slice(0, -1)},"params":${valueAt(event.payload, ['params']) ?? '{}'}}`;
}
