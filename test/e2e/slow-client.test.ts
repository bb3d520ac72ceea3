/**
 * A client that reads at 10 KB/s while the agent streams far more than any buffer holds: it costs a bounded amount of
 * memory, delays nobody, and ends with the same text. `SLOW_CLIENT_MB=100` streams what the README's figures say.
 */
import { createHash } from 'node:crypto';
import { type Socket, connect } from 'node:net';
import { describe, expect, it } from 'vitest';
import { at, type Message, type Received, updateOf } from '../support/json.ts';
import { askPermission, card } from '../support/room.ts';
import { lineSplitter } from '../support/line-splitter.ts';
import { testScope } from '../support/scope.ts';
import { boundHitsOf, ownMemoryMiB } from '../support/sidecar-facts.ts';
import { type Stage, setStage } from '../support/stage.ts';
import { waitFor, within } from '../support/wait-for.ts';

const MEGABYTES = Number(process.env['SLOW_CLIENT_MB'] ?? 24);
const CHUNK_BYTES = 1000;
const BYTES_PER_SECOND = 10_000;

/** Reads a socket at a given pace, whatever the kernel has for it; nothing more is buffered here. */
class SlowReader {
  readonly #socket: Socket;
  readonly #hash = createHash('sha256');
  readonly #messages: (message: Message) => void;
  bytes = 0;
  textBytes = 0;
  closed = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(path: string, onMessage: (message: Message) => void) {
    this.#socket = connect(path);
    this.#messages = onMessage;
    const line = lineSplitter((text) => this.#line(text));
    this.#socket.on('data', (bytes: Buffer) => {
      this.bytes += bytes.length;
      line(bytes);
    });
    this.#socket.on('close', () => (this.closed = true));
    this.#socket.on('error', () => undefined);
  }

  get digest(): string {
    return this.#hash.copy().digest('hex');
  }

  send(message: object): void {
    this.#socket.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
  }

  /** From now on `BYTES_PER_SECOND`. A read of Node's takes up to 64 KiB, so it pauses until these are paid for. */
  slow(): void {
    const started = Date.now();
    const base = this.bytes;
    this.#timer = setInterval(() => {
      const due = base + ((Date.now() - started) / 1000) * BYTES_PER_SECOND;
      if (this.bytes > due) this.#socket.pause();
      else this.#socket.resume();
    }, 10);
  }

  fast(): void {
    clearInterval(this.#timer);
    this.#socket.resume();
  }

  end(): void {
    clearInterval(this.#timer);
    this.#socket.destroy();
  }

  #line(text: string): void {
    const message = JSON.parse(text) as Message;
    const chunk = at(updateOf(message), 'content', 'text');
    if (at(updateOf(message), 'sessionUpdate') === 'agent_message_chunk' && typeof chunk === 'string') {
      this.#hash.update(chunk);
      this.textBytes += Buffer.byteLength(chunk);
    }
    this.#messages(message);
  }
}

async function attachSlow(stage: Stage): Promise<SlowReader> {
  const answered = new Set<unknown>();
  const reader = new SlowReader(stage.sidecar.socketPath, (message) => answered.add(message.id));
  stage.scope.defer(() => reader.end());
  reader.send({ id: 'i', method: 'initialize', params: { protocolVersion: 1, clientCapabilities: {} } });
  reader.send({ id: 'l', method: 'session/load', params: { sessionId: stage.sessionId, cwd: '/', mcpServers: [] } });
  await waitFor('the slow client to be attached', () => answered.has('l'));
  return reader;
}

describe('a slow client', () => {
  it(`[OR5] client_outbox: ${MEGABYTES} MB at 10 KB/s cost bounded memory, delay nobody, and end as the same text`, {
    timeout: 300_000,
  }, async () => {
    const stage = await setStage(testScope());
    const { life, sidecar, sessionId, agentSessionId } = stage;
    const fast = await attachSlow(stage);
    const slow = await attachSlow(stage);
    slow.slow();
    const turn = await stage.turn();
    const before = ownMemoryMiB(sidecar);
    let most = before;
    const timer = setInterval(() => (most = Math.max(most, ownMemoryMiB(sidecar))), 50);
    const hash = createHash('sha256');
    const count = (MEGABYTES * 1e6) / CHUNK_BYTES;
    for (let n = 0; n < count; n++) {
      const text = `${n}:`.padEnd(CHUNK_BYTES, 'é~');
      const chunk = Buffer.from(text)
        .subarray(0, CHUNK_BYTES - 2)
        .toString('utf8')
        .replace(/\ufffd/g, '');
      hash.update(chunk);
      life.say(agentSessionId, chunk);
      if (n % 2000 === 1999) {
        // The fast client is never far behind the agent, whatever the slow one does.
        const sent = n;
        life.update(agentSessionId, { sessionUpdate: 'plan', entries: [{ content: String(sent) }] });
        await stage.client.until(
          `mark ${sent}`,
          ({ message }) => {
            return at(message, 'params', 'update', 'entries', 0, 'content') === String(sent);
          },
          { from: Math.max(0, stage.client.received.length - 5), timeoutMs: 10_000 },
        );
      }
    }
    await within('the turn to end', turn.end(), 60_000);
    const expected = hash.digest('hex');
    await waitFor('the fast client to have it all', () => fast.digest === expected);
    clearInterval(timer);
    expect(slow.bytes).toBeLessThan(MEGABYTES * 1e6 * 0.2);
    expect(await boundHitsOf(sidecar, 'client_outbox')).toBeGreaterThan(0);
    expect(most - before).toBeLessThan(64);
    const late = await stage.join();
    await within('a request of another client', late.request('_sidecar/status', { sessionId }), 2000);
    slow.fast();
    await waitFor('the slow client to have it all', () => slow.digest === expected, { timeoutMs: 120_000 });
    expect(slow.closed).toBe(false);
    expect(slow.textBytes).toBe(fast.textBytes);
    expect(ownMemoryMiB(sidecar) - before).toBeLessThan(64);
  });

  it('[OR3] gets what it is owed in its place; requests to it and answers to others go ahead', async () => {
    const stage = await setStage(testScope(), { optIn: true });
    const { life, sidecar, client, sessionId, agentSessionId } = stage;
    const turn = await stage.turn();
    client.transport.pause();
    const last = 160;
    for (let n = 0; n <= last; n++)
      life.update(agentSessionId, { sessionUpdate: 'plan', entries: [], n, pad: 'x'.repeat(50_000) });
    const watcher = await stage.join(true);
    await watcher.load(sessionId);
    const isLast = ({ message }: Received): boolean => at(message, 'params', 'update', 'n') === last;
    await watcher.until('the last plan', isLast);
    expect(await boundHitsOf(sidecar, 'client_outbox')).toBeGreaterThan(0);
    askPermission(life, agentSessionId);
    life.send({ id: 'read', method: 'fs/read_text_file', params: { sessionId: agentSessionId, path: '/x' } });
    const listed = client.ask('session/list');
    await card(watcher, sessionId);
    life.reply(turn.request, { stopReason: 'end_turn' });
    await watcher.until('the end', ({ message }) => at(message, 'params', 'state') === 'ended');
    client.transport.resume();
    const order = [
      await client.saw('fs/read_text_file'),
      await listed,
      await client.until('the last plan', isLast),
      await client.until('the approval', ({ message }) => message.method === '_sidecar/approval'),
      await card(client, sessionId),
      await client.until('the end', ({ message }) => at(message, 'params', 'state') === 'ended'),
      await turn.answer,
    ].map((entry) => client.received.indexOf(entry));
    const [read = 0, list = 0, plan = 0, ...owed] = order;
    expect(Math.max(read, list)).toBeLessThan(plan);
    expect([plan, ...owed]).toEqual([plan, ...owed].toSorted((a, b) => a - b));
  });
});
