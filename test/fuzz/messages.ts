/**
 * Messages that are almost right: every method and update there is, with values that are missing, doubled, of another
 * type, huge, deep or hostile; and bytes that are almost a message. The same random numbers give the same messages.
 */
import { METHODS } from '../../protocol/methods.ts';
import { UPDATE_KINDS } from '../../protocol/v1/update-kinds.ts';

export type Random = () => number;
type Json = unknown;

/** What messages may name. */
export interface Pools {
  readonly sessions: readonly string[];
  readonly cursors: readonly string[];
  /** Ids of requests that wait for an answer, as JSON text. */
  readonly waiting: readonly string[];
}

const HOSTILE_STRINGS = [
  '',
  '\0',
  '..',
  '../../etc/passwd',
  '__proto__',
  'constructor',
  'toString',
  'hasOwnProperty',
  '\u2028\u2029',
  '\ufeff',
  '\ud83d\ude00',
  'é'.repeat(300),
  '%s%n%x',
  '"',
  '\\',
  '\\u0000',
  '</script>',
  '$/cancel_request',
  '0',
  '-1',
  'null',
  'true',
  'a'.repeat(5000),
  '\r\n',
  '{"jsonrpc":"2.0"}',
  '1-0',
  '~',
  '.',
  'x-1~y-1',
  '9007199254740993',
];
const HOSTILE_NUMBERS = [0, -0, 1, -1, 0.1, 1e308, -1e308, 2 ** 31, 2 ** 32, 2 ** 53, -(2 ** 53), 1e21, 5e-324];
const KEYS = [
  'sessionId',
  'update',
  'content',
  'text',
  'type',
  '_meta',
  'sidecar',
  'toolCallId',
  'status',
  'options',
  'outcome',
  'id',
  'method',
  'params',
  'result',
  'error',
  'jsonrpc',
  '__proto__',
  'constructor',
  '',
  'messageId',
  'eventId',
  'isReplay',
  'cursor',
];
const CLIENT_METHODS = Object.keys(METHODS.client);
const AGENT_METHODS = Object.keys(METHODS.agent);
const KINDS = Object.keys(UPDATE_KINDS);
const STATUSES = ['pending', 'in_progress', 'completed', 'failed', 'cancelled', 'x', null, 7];

export class Messages {
  readonly random: Random;

  constructor(random: Random) {
    this.random = random;
  }

  int(below: number): number {
    return Math.floor(this.random() * below);
  }

  pick<T>(items: readonly T[]): T {
    return items[this.int(items.length)] as T;
  }

  chance(of: number): boolean {
    return this.random() < of;
  }

  string(): string {
    if (this.chance(0.6)) return this.pick(HOSTILE_STRINGS);
    return Array.from({ length: this.int(20) }, () => String.fromCharCode(32 + this.int(95))).join('');
  }

  json(depth = 3): Json {
    const kind = this.int(depth > 0 ? 7 : 5);
    if (kind === 0) return null;
    if (kind === 1) return this.chance(0.5);
    if (kind === 2) return this.pick(HOSTILE_NUMBERS);
    if (kind < 5) return this.string();
    if (kind === 5) return Array.from({ length: this.int(4) }, () => this.json(depth - 1));
    return Object.fromEntries(
      Array.from({ length: this.int(4) }, () => [
        this.chance(0.7) ? this.pick(KEYS) : this.string(),
        this.json(depth - 1),
      ]),
    );
  }

  /** Changes something somewhere in it; never the member `keep` of the outermost params. */
  mutate(value: Json, rate = 0.1): Json {
    if (this.chance(rate)) return this.json();
    if (Array.isArray(value)) {
      const items = value.map((item: Json) => this.mutate(item, rate));
      if (this.chance(rate) && items.length > 0) items.push(items[0]);
      if (this.chance(rate)) items.splice(this.int(items.length + 1), 1);
      return items;
    }
    if (typeof value !== 'object' || value === null) return value;
    const entries = Object.entries(value).flatMap(([key, item]): [string, Json][] => {
      if (this.chance(rate / 2)) return [];
      return [[this.chance(rate / 4) ? this.pick(KEYS) : key, this.mutate(item, rate)]];
    });
    if (this.chance(rate)) entries.push([this.pick(KEYS), this.json()]);
    return Object.fromEntries(entries);
  }

  block(text: string): Json {
    return this.pick<Json>([
      { type: 'text', text },
      { type: 'text', text, annotations: { audience: ['user'] } },
      { type: 'image', data: 'aGk=', mimeType: 'image/png' },
      { type: 'resource_link', uri: 'file:///x', name: text },
      { type: 'resource', resource: { uri: 'file:///x', text } },
      { type: 'unheard_of', text },
    ]);
  }

  /** Wire text of a message of a client. `session` is one that it may name. */
  fromClient(pools: Pools): string {
    const way = this.random();
    if (way < 0.1 && pools.waiting.length > 0) return this.#answer(pools);
    const method = this.chance(0.92)
      ? this.pick(CLIENT_METHODS)
      : this.pick([...AGENT_METHODS, '_vendor/x', this.string()]);
    const sidecar = {
      afterEventId: this.chance(0.7) && pools.cursors.length > 0 ? this.pick(pools.cursors) : this.string(),
      fallback: this.pick(['none', 'full', 'x']),
      promptId: this.pick(['p1', 'p2', this.string()]),
      requestKey: this.pick(['k1', 'k2', this.string()]),
      version: 1,
      clientId: this.pick(['c1', 'c2', this.string()]),
      role: this.pick(['controller', 'observer']),
    };
    const params = {
      sessionId: pools.sessions.length > 0 ? this.pick(pools.sessions) : 'none',
      cwd: '/tmp',
      mcpServers: this.chance(0.5) ? [] : [{ name: 'm', command: 'x', args: ['a'], env: [] }],
      prompt: [this.block('fuzz'), this.block('more')],
      protocolVersion: this.chance(0.9) ? 1 : this.json(),
      clientCapabilities: {
        fs: { readTextFile: true, writeTextFile: true },
        terminal: true,
        elicitation: { form: {} },
        _meta: { sidecar },
      },
      modeId: this.string(),
      configId: 'c',
      value: this.json(1),
      requestId: this.int(40),
      cursor: this.pick([...pools.cursors, 'x']),
      historyPolicy: this.pick(['full', 'none', 'pending_only', 'after_event', 'after_message']),
      before: this.pick([...pools.cursors, 'x']),
      limit: this.pick([1, 0, -1, 1e9, 'x']),
      types: ['update'],
      _meta: { sidecar, cursor: this.pick([...pools.cursors, 'x']) },
    };
    const kept = Object.fromEntries(
      Object.entries(params).filter(
        ([key]) => ['sessionId', 'cwd', 'mcpServers', '_meta'].includes(key) || this.chance(0.6),
      ),
    );
    return this.#envelope(method, this.mutate(kept, 0.04), this.chance(0.8));
  }

  /** Wire text of a message of the agent about a session. `mark` is put into its texts. */
  fromAgent(sessionId: string, mark: string, pools: Pools): string {
    const way = this.random();
    if (way < 0.08 && pools.waiting.length > 0) return this.#answer(pools);
    if (way < 0.75) {
      const update = this.mutate(this.update(mark), 0.05);
      return this.#envelope(
        'session/update',
        { sessionId, update, ...(this.chance(0.2) ? { _meta: this.json(2) } : {}) },
        false,
      );
    }
    const method = this.chance(0.9) ? this.pick(AGENT_METHODS) : this.pick(['_vendor/ask', ...CLIENT_METHODS]);
    const params = {
      toolCall: { toolCallId: `t${this.int(5)}`, title: mark, kind: 'edit', rawInput: { mark } },
      options: [
        { optionId: 'a', name: 'Allow', kind: 'allow_once' },
        { optionId: 'r', name: mark, kind: 'reject_once' },
      ],
      path: `/tmp/${mark}`,
      content: mark,
      command: 'ls',
      terminalId: `term${this.int(3)}`,
      requestId: this.int(40),
      mode: this.pick(['form', 'url']),
      message: mark,
      requestedSchema: { type: 'object', properties: {} },
      elicitationId: `e${this.int(3)}`,
      url: 'https://x.example',
    };
    const changed = this.mutate(params, 0.05);
    const own = typeof changed === 'object' && changed !== null ? changed : {};
    // The session is not touched: it says whose the mark is.
    return this.#envelope(method, { ...own, sessionId }, this.chance(0.8));
  }

  update(mark: string): Json {
    const toolCallId = `t${this.int(5)}`;
    return {
      sessionUpdate: this.chance(0.95) ? this.pick(KINDS) : this.string(),
      ...(this.chance(0.7)
        ? { content: this.block(mark) }
        : { content: [{ type: 'content', content: this.block(mark) }] }),
      ...(this.chance(0.5) ? { toolCallId, title: mark, status: this.pick(STATUSES) } : {}),
      ...(this.chance(0.3) ? { messageId: `m${this.int(3)}` } : {}),
      ...(this.chance(0.2) ? { entries: [{ content: mark, priority: 'high', status: 'pending' }] } : {}),
      ...(this.chance(0.1) ? { availableCommands: [{ name: mark, description: '' }], currentModeId: mark } : {}),
      ...(this.chance(0.1)
        ? { configOptions: [{ id: 'c', type: 'select', name: mark, currentValue: 'v' }], title: mark }
        : {}),
    };
  }

  #answer(pools: Pools): string {
    const id = this.pick(pools.waiting);
    const result = this.chance(0.5)
      ? { outcome: { outcome: this.pick(['selected', 'cancelled', 'x']), optionId: this.pick(['a', 'r', 'nothing']) } }
      : this.json();
    if (this.chance(0.2)) return `{"jsonrpc":"2.0","id":${id},"error":${this.text(this.json())}}`;
    return `{"jsonrpc":"2.0","id":${id},"result":${this.text(result)}}`;
  }

  #envelope(method: string, params: Json, request: boolean): string {
    const id = request ? `"id":${this.text(this.chance(0.9) ? this.int(1e6) : this.json(1))},` : '';
    const rest = this.chance(0.03) ? `,${this.text(this.string())}:${this.text(this.json())}` : '';
    return `{"jsonrpc":"2.0",${id}"method":${this.text(method)},"params":${this.text(params)}${rest}}`;
  }

  text(value: Json): string {
    return JSON.stringify(value) ?? 'null';
  }

  /** Bytes that were a message. */
  broken(wire: string): Buffer {
    let bytes = Buffer.from(wire);
    for (let n = 1 + this.int(4); n > 0; n--) {
      const at = this.int(bytes.length + 1);
      const way = this.int(7);
      const byte = Buffer.from([this.int(256)]);
      if (way === 0) bytes = bytes.subarray(0, at);
      else if (way === 1) bytes = Buffer.concat([bytes.subarray(0, at), byte, bytes.subarray(at)]);
      else if (way === 2) bytes = Buffer.concat([bytes.subarray(0, at), bytes.subarray(at + 1 + this.int(8))]);
      else if (way === 3) bytes = Buffer.concat([bytes, bytes]);
      else if (way === 4)
        bytes = Buffer.concat([bytes.subarray(0, at), Buffer.from('[{"'.repeat(this.int(300))), bytes.subarray(at)]);
      else if (way === 5)
        bytes = Buffer.concat([bytes.subarray(0, at), Buffer.from([0xed, 0xa0, 0x80, 0xff, 0xc3]), bytes.subarray(at)]);
      else if (at < bytes.length) {
        bytes = Buffer.from(bytes);
        bytes[at] = (bytes[at] as number) ^ (1 << this.int(8));
      }
    }
    return bytes;
  }
}
