/** `session/list` when the agent's own list has several pages. */
import { describe, expect, it } from 'vitest';
import { at } from '../support/json.ts';
import type { RawClient } from '../support/raw-client.ts';
import { testScope } from '../support/scope.ts';
import { type Stage, setStage } from '../support/stage.ts';

interface Page {
  readonly ids: readonly string[];
  readonly next?: string;
}

interface Listed {
  readonly sessions: readonly { readonly sessionId: string }[];
  readonly nextCursor?: string;
}

/** An agent whose list has these pages, by the cursor that asks for them; the first one by ''. */
function stageWith(page: (cursor: string) => Page | undefined): Promise<Stage> {
  return setStage(testScope(), {
    capabilities: { loadSession: true, sessionCapabilities: { list: {} } },
    handlers: {
      'session/list': (request) => {
        const cursor = at(request, 'params', 'cursor');
        const found = page(typeof cursor === 'string' ? cursor : '');
        if (!found) return undefined;
        return { sessions: found.ids.map((sessionId) => ({ sessionId, cwd: '/tmp' })), nextCursor: found.next };
      },
    },
  });
}

/** The ids on each page that the sidecar gives, to the last one. */
async function pagesOf(client: RawClient, params: object = {}): Promise<string[][]> {
  const pages: string[][] = [];
  let cursor: string | undefined;
  do {
    const listed = (await client.request('session/list', { ...params, cursor })) as Listed;
    pages.push(listed.sessions.map(({ sessionId }) => sessionId));
    cursor = listed.nextCursor;
  } while (cursor !== undefined);
  return pages;
}

describe('pages of the agent', () => {
  it('[SS2] are followed, also past an empty one; ours are hidden and no id comes twice', async () => {
    const pages: Record<string, Page> = {
      '': { ids: [], next: 'b' },
      b: { ids: ['x', 'agent-session-1'], next: 'c\u20ac' },
      'c\u20ac': { ids: ['x', 'y', 'y'] },
    };
    const { client, sessionId } = await stageWith((cursor) => pages[cursor]);
    expect(await pagesOf(client)).toEqual([[sessionId, 'x', 'y']]);
  });

  it('[SS2] that are too many for one answer come in the next ones, each session once', async () => {
    const page = (n: number): Page => ({
      ids: Array.from({ length: 300 }, (_, i) => `s-${n * 300 + i}`),
      ...(n < 9 && { next: String(n + 1) }),
    });
    const { client, sessionId } = await stageWith((cursor) => page(Number(cursor)));
    const pages = await pagesOf(client);
    expect(pages.flat()).toEqual([sessionId, ...Array.from({ length: 3000 }, (_, i) => `s-${i}`)]);
    expect(pages.map(({ length }) => length)).toEqual([1201, 1200, 600]);
  });

  it('[SS2] that lead in a circle end', async () => {
    const { client, sessionId } = await stageWith((cursor) => ({
      ids: [`at-${cursor}`],
      next: cursor === 'a' ? 'b' : 'a',
    }));
    expect(await pagesOf(client)).toEqual([[sessionId, 'at-', 'at-a', 'at-b']]);
  });

  it('[SS2] that do not come in time are left for the next answer', async () => {
    let slow = true;
    const { client, sessionId, life } = await stageWith((cursor) => {
      if (cursor === '') return { ids: ['x'], next: 'late' };
      return slow ? undefined : { ids: ['y'] };
    });
    const first = client.ask('session/list');
    await life.saw('session/list', 1);
    const { message } = await first;
    slow = false;
    expect(at(message, 'result', 'sessions')).toMatchObject([{ sessionId }, { sessionId: 'x' }]);
    const cursor = at(message, 'result', 'nextCursor');
    expect(await client.request('session/list', { cursor })).toEqual({ sessions: [{ sessionId: 'y', cwd: '/tmp' }] });
  });

  it('[ER5] a cursor that was never given is refused, whatever it looks like', async () => {
    const { client, life } = await stageWith(() => ({ ids: ['x'] }));
    for (const text of ['agent:', 'agent:x:y', 'agent:1:', '1:2', 'a'.repeat(100)]) {
      const { message } = await client.ask('session/list', { cursor: Buffer.from(text).toString('base64url') });
      expect(message.error?.code, text).toBe(-32602);
    }
    expect(life.received.filter(({ message }) => message.method === 'session/list')).toEqual([]);
  });
});
