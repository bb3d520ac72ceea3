import { describe, expect, it } from 'vitest';
import { textOfPieces } from '../../../protocol/v1/transcript.ts';
import { emptyView, foldMessage, type View } from '../../../protocol/v1/view.ts';

function say(view: View, words: string, meta: Record<string, unknown> = {}, sessionId = 's'): View {
  const update = { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: words } };
  return foldMessage(view, { sessionId, update, _meta: meta });
}
const said = (view: View): string =>
  view.transcript.entries.map((entry) => (entry.type === 'message' ? textOfPieces(entry.pieces) : '')).join('|');

describe('a view', () => {
  it('[RP4] is cleared by a full replay, not by a tail', () => {
    const view = emptyView();
    say(view, 'old', { eventId: 'log-1' });
    say(view, '+tail', { eventId: 'log-2' });
    expect(said(view)).toBe('old+tail');
    say(view, 'new', { eventId: 'log-1', isReplay: true });
    say(view, 'er', { eventId: 'log-2', isReplay: true });
    expect(said(view)).toBe('newer');
    say(view, '!', { eventId: 'log-3~b-1' });
    expect(said(view)).toBe('newer!');
    expect(view.lastEventId).toBe('log-3~b-1');
  });

  it('[RP4] is cleared when a second full replay starts again at the beginning', () => {
    const view = emptyView('s');
    for (let round = 0; round < 2; round++) {
      say(view, 'a', { eventId: 'log-1', isReplay: true });
      say(view, 'b', { eventId: 'log-2~boot-1', isReplay: true });
      say(view, 'c', { eventId: 'log-2', isReplay: true });
    }
    expect(said(view)).toBe('abc');
  });

  it('[FO8] shows a child session apart from its parent', () => {
    const view = emptyView('s');
    say(view, 'a');
    say(view, 'child', {}, 'sub');
    say(view, 'b');
    expect(said(view)).toBe('ab');
    expect(view.children['session:sub']?.entries).toHaveLength(1);
  });
});
