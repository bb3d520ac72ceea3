/** What the person in front of the editor has to know: one line in the conversation, made by this side. */
import { notificationText } from '../../protocol/json-rpc.ts';
import { stringifyWire } from '../../protocol/wire-text.ts';

/** A `session/update` with a message of its own. Wire text. */
export function visibleLine(sessionId: string, text: string, messageId: string): string {
  const content = { type: 'text', text: `[acp-sidecar] ${text}` };
  const update = { sessionUpdate: 'agent_message_chunk', content, messageId };
  return notificationText('session/update', stringifyWire({ sessionId, update }));
}

export function lostText(characters: number): string {
  const what = characters === 1 ? 'character' : 'characters';
  return `The sidecar was stopped before it could record the end of the text above: its last ${characters} ${what} are not in the session.`;
}

export function replayText(reason: string): string {
  const why =
    reason === 'foreign'
      ? 'the session now has another log'
      : reason === 'ahead'
        ? 'the log of the session is older than what is shown here'
        : `the place where the connection was lost cannot be found again (${reason})`;
  return `What follows is the whole session from its beginning: ${why}.`;
}

export function goneText(message: string): string {
  return `This session cannot be continued: ${message}`;
}
