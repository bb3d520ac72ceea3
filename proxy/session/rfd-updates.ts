/**
 * The extra updates of ACP's RFD #533 (multi-client session attach), for clients that came with `session/attach`. They
 * repeat what turns and approvals say elsewhere; `outcome` stands beside `chosenOptionId`, which cannot tell a refusal
 * without an option.
 */
import { settledId } from '../../protocol/event-id.ts';
import { notificationText } from '../../protocol/json-rpc.ts';
import { decodeWire, parseWire, stringifyWire, valueAt } from '../../protocol/wire-text.ts';
import type { StoredEvent } from '../../storage/event-codec.ts';
import type { Attachment } from './attachment.ts';
import type { Envelope, Rendered } from './render.ts';

export function rfdUpdates(envelope: Envelope, event: StoredEvent, attachment: Attachment): Rendered[] {
  if (!attachment.rfd) return [];
  const update = updateOf(event);
  if (update === undefined) return [];
  const { sessionId, logId } = envelope;
  const meta = stringifyWire({ eventId: settledId(logId, event.seq) });
  const params = `{"sessionId":${stringifyWire(sessionId)},"update":${update},"_meta":${meta}}`;
  return [{ wire: notificationText('session/update', params) }];
}

function updateOf(event: StoredEvent): string | undefined {
  const turnId = event.turnId === undefined ? undefined : decodeWire(event.turnId);
  switch (event.type) {
    case 'turn_started': {
      const facts = parseWire(valueAt(event.payload, ['facts']) ?? '{}') as { clientId?: string };
      const head = stringifyWire({
        sessionUpdate: 'prompt_received',
        messageId: turnId,
        sentBy: { clientId: facts.clientId },
      });
      return `${head.slice(0, -1)},"prompt":${valueAt(event.payload, ['prompt']) ?? '[]'}}`;
    }
    case 'turn_ended': {
      const ended = parseWire(event.payload) as { response?: { stopReason?: string }; code?: string };
      const stopReason = ended.response?.stopReason;
      const error = ended.response ? undefined : (ended.code ?? 'error');
      return stringifyWire({ sessionUpdate: 'turn_complete', messageId: turnId, stopReason, error });
    }
    case 'approval_resolved': {
      const { approvalId, outcome, by } = parseWire(event.payload) as {
        approvalId: string;
        outcome?: { optionId?: string } | null;
        by?: unknown;
      };
      const toolCallId = event.toolCallId === undefined ? undefined : decodeWire(event.toolCallId);
      const chosenOptionId = outcome?.optionId;
      const resolvedBy = by ?? undefined;
      return stringifyWire({
        sessionUpdate: 'permission_resolved',
        toolCallId,
        approvalId,
        chosenOptionId,
        outcome,
        resolvedBy,
      });
    }
    default:
      return undefined;
  }
}
