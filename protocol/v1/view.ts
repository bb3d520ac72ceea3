/**
 * What one client shows of a session: folds whole `session/update` params, with the rules of a replay.
 *
 * A full replay (`isReplay`) after anything else, or one that starts again further back, clears the view first. Updates
 * of a child session fold into a transcript of their own.
 */
import { comparePositions, parseEventId, positionOf } from '../event-id.ts';
import { isObject, type JsonObject } from '../json-rpc.ts';
import { foldUpdate } from './fold.ts';
import { emptyTranscript, type Transcript } from './transcript.ts';

export interface View {
  /** The session that is shown; the first message's when it was not given. */
  sessionId?: string;
  transcript: Transcript;
  /** `session:<sessionId>` of each child to its transcript. */
  children: Record<string, Transcript>;
  /** The cursor to resume from: the eventId of the last message that was folded in. */
  lastEventId?: string;
  replaying: boolean;
}

export function emptyView(sessionId?: string): View {
  return {
    ...(sessionId !== undefined && { sessionId }),
    transcript: emptyTranscript(),
    children: {},
    replaying: false,
  };
}

/** Folds the params of one `session/update` into the view, in place, and returns it. */
export function foldMessage(view: View, params: JsonObject): View {
  const meta = isObject(params['_meta']) ? params['_meta'] : {};
  const eventId = typeof meta['eventId'] === 'string' ? meta['eventId'] : undefined;
  const isReplay = meta['isReplay'] === true;
  if (isReplay && (!view.replaying || goesBack(view.lastEventId, eventId))) {
    view.transcript = emptyTranscript();
    view.children = {};
  }
  view.replaying = isReplay;
  if (eventId !== undefined) view.lastEventId = eventId;
  const sessionId = typeof params['sessionId'] === 'string' ? params['sessionId'] : undefined;
  if (view.sessionId === undefined && sessionId !== undefined) view.sessionId = sessionId;
  foldUpdate(transcriptFor(view, sessionId), params['update']);
  return view;
}

function transcriptFor(view: View, sessionId: string | undefined): Transcript {
  if (sessionId === undefined || sessionId === view.sessionId) return view.transcript;
  return (view.children[`session:${sessionId}`] ??= emptyTranscript());
}

function goesBack(last: string | undefined, next: string | undefined): boolean {
  const before = parseEventId(last);
  const after = parseEventId(next);
  return before !== undefined && after !== undefined && comparePositions(positionOf(after), positionOf(before)) < 0;
}
