/**
 * Every method of ACP v1 (stable, unstable, and the SDK's experimental `nes/*` and `document/*`) and of our extension:
 * who sends it, who answers it, what of it is written. A test holds the table to the schema files and method lists of
 * the SDK. A method that is not here passes to the other side unchanged, with the id rewritten.
 */
export type Sender = 'client' | 'agent' | 'sidecar';

export interface MethodSpec {
  readonly kind: 'request' | 'notification' | 'either';
  /**
   * What it acts on: `session` names one in `params.sessionId`; `connection` only its sender's connection;
   * `process` the agent process or the store, so everyone.
   */
  readonly scope: 'session' | 'connection' | 'process';
  /** Who answers a request or acts on a notification. `sidecar`: it never reaches the other side as it came. */
  readonly answeredBy: 'sidecar' | 'agent' | 'client';
  /** What becomes an event: nothing, the message itself, what its success changed, or both. */
  readonly durable: 'no' | 'message' | 'outcome' | 'both';
  /** The least role of the client that may send it; from the agent: of a client that may be sent it. */
  readonly role: 'observer' | 'controller';
  /** Acts on the client's machine: exactly one client gets it, and it is never replayed. */
  readonly sideEffect?: true;
  /** Path in `clientCapabilities` that a client must have advertised to be asked; see `capabilityFor`. */
  readonly capability?: string;
  /** Params or result hold credentials: never logged, traced or stored. */
  readonly secret?: true;
  /** Ours to refuse with -32601: it is meant for another kind of peer. */
  readonly refused?: true;
}

/** What clients send. */
const FROM_CLIENT = {
  // Connection and process
  initialize: request('connection', 'sidecar', 'no', 'observer'),
  authenticate: request('process', 'agent', 'no', 'controller', { secret: true }),
  logout: request('process', 'agent', 'no', 'controller'),
  'auth/status': request('process', 'agent', 'no', 'observer', { secret: true }),
  'providers/list': request('process', 'agent', 'no', 'controller', { secret: true }),
  'providers/set': request('process', 'agent', 'no', 'controller', { secret: true }),
  'providers/disable': request('process', 'agent', 'no', 'controller', { secret: true }),
  '$/cancel_request': notification('connection', 'agent', 'no', 'observer'),

  // Sessions. `mcpServers` of new, load, resume and fork is never stored but for the names.
  'session/new': request('process', 'agent', 'outcome', 'controller'),
  'session/load': request('session', 'sidecar', 'no', 'observer'),
  'session/resume': request('session', 'sidecar', 'no', 'observer'),
  'session/fork': request('session', 'sidecar', 'outcome', 'controller'),
  'session/list': request('process', 'sidecar', 'no', 'observer'),
  // The agent must not be started to answer this, so it is answered from the log.
  'session/status': request('session', 'sidecar', 'no', 'observer'),
  // The last attachment's close reaches the agent and ends what runs there; an observer detaches instead.
  'session/close': request('session', 'sidecar', 'outcome', 'controller'),
  'session/delete': request('session', 'sidecar', 'outcome', 'controller'),
  'session/archive': request('session', 'agent', 'no', 'controller'),
  'session/unarchive': request('session', 'agent', 'no', 'controller'),
  'session/set_title': request('session', 'agent', 'outcome', 'controller'),
  'session/set_mode': request('session', 'agent', 'outcome', 'controller'),
  'session/set_config_option': request('session', 'agent', 'outcome', 'controller'),
  'session/prompt': request('session', 'agent', 'both', 'controller'),
  // Its effect arrives as updates, resolved approvals and the prompt's stop reason.
  'session/cancel': notification('session', 'agent', 'no', 'controller'),
  'session/attach': request('session', 'sidecar', 'no', 'observer'),
  'session/detach': request('session', 'sidecar', 'no', 'observer'),

  // Passed on
  'mcp/message': notification('connection', 'agent', 'no', 'controller', { secret: true }),
  'nes/start': request('process', 'agent', 'no', 'controller'),
  'nes/suggest': request('session', 'agent', 'no', 'controller'),
  'nes/close': request('session', 'agent', 'no', 'controller'),
  'nes/accept': notification('session', 'agent', 'no', 'controller'),
  'nes/reject': notification('session', 'agent', 'no', 'controller'),
  'document/didOpen': notification('session', 'agent', 'no', 'controller'),
  'document/didChange': notification('session', 'agent', 'no', 'controller'),
  'document/didClose': notification('session', 'agent', 'no', 'controller'),
  'document/didSave': notification('session', 'agent', 'no', 'controller'),
  'document/didFocus': notification('session', 'agent', 'no', 'controller'),

  // A conductor sends these to a proxy of a proxy chain. Passed on, they would make the agent act as one.
  'proxy/initialize': request('connection', 'sidecar', 'no', 'controller', { refused: true }),
  'proxy/successor': Object.freeze({
    ...request('connection', 'sidecar', 'no', 'controller', { refused: true }),
    kind: 'either',
  }),

  // Ours
  '_sidecar/history': request('session', 'sidecar', 'no', 'observer'),
  '_sidecar/events': request('session', 'sidecar', 'no', 'observer'),
  // Its sessionId is optional: without one, over all sessions that the client may see.
  '_sidecar/approvals': request('session', 'sidecar', 'no', 'observer'),
  '_sidecar/ping': request('connection', 'sidecar', 'no', 'observer'),
  '_sidecar/status': request('session', 'sidecar', 'no', 'observer'),
} as const satisfies Record<string, MethodSpec>;

/** What the agent sends. */
const FROM_AGENT = {
  '$/cancel_request': notification('connection', 'client', 'no', 'observer'),
  // Durable by its variant: see `v1/update-kinds.ts`.
  'session/update': notification('session', 'client', 'message', 'observer'),
  'session/request_permission': request('session', 'client', 'both', 'controller'),
  // Session-scoped or, with `requestId`, request-scoped; the latter is unrecorded.
  'elicitation/create': request('session', 'client', 'both', 'controller', { capability: 'elicitation' }),
  'elicitation/complete': notification('connection', 'client', 'no', 'controller', { capability: 'elicitation.url' }),
  'auth/status_update': notification('process', 'client', 'no', 'observer', { secret: true }),
  'fs/read_text_file': ownedByOne('fs.readTextFile'),
  'fs/write_text_file': ownedByOne('fs.writeTextFile'),
  'terminal/create': ownedByOne('terminal'),
  'terminal/output': ownedByOne('terminal'),
  'terminal/wait_for_exit': ownedByOne('terminal'),
  'terminal/kill': ownedByOne('terminal'),
  'terminal/release': ownedByOne('terminal'),
  // Goes to the client whose `mcpServers` declared the server; the inner requestId stays as it is.
  'mcp/message': request('connection', 'client', 'no', 'controller', { sideEffect: true, secret: true }),
} as const satisfies Record<string, MethodSpec>;

/** What we send to clients that opted in. */
const FROM_SIDECAR = {
  '_sidecar/replay': notification('session', 'client', 'no', 'observer'),
  '_sidecar/turn': notification('session', 'client', 'no', 'observer'),
  '_sidecar/approval': notification('session', 'client', 'no', 'observer'),
  '_sidecar/agent': notification('session', 'client', 'no', 'observer'),
  '_sidecar/clients': notification('session', 'client', 'no', 'observer'),
  '_sidecar/log': notification('session', 'client', 'no', 'observer'),
} as const satisfies Record<string, MethodSpec>;

export type ClientMethod = keyof typeof FROM_CLIENT;
export type AgentMethod = keyof typeof FROM_AGENT;
export type SidecarMethod = keyof typeof FROM_SIDECAR;
export type Method = ClientMethod | AgentMethod | SidecarMethod;

type MethodTables = {
  readonly client: Readonly<Record<ClientMethod, MethodSpec>>;
  readonly agent: Readonly<Record<AgentMethod, MethodSpec>>;
  readonly sidecar: Readonly<Record<SidecarMethod, MethodSpec>>;
};

/** The whole table, by sender. */
export const METHODS: MethodTables = Object.freeze({
  client: Object.freeze(FROM_CLIENT),
  agent: Object.freeze(FROM_AGENT),
  sidecar: Object.freeze(FROM_SIDECAR),
});

const LOOKUP: Readonly<Record<Sender, ReadonlyMap<string, MethodSpec>>> = {
  client: new Map(Object.entries(FROM_CLIENT)),
  agent: new Map(Object.entries(FROM_AGENT)),
  sidecar: new Map(Object.entries(FROM_SIDECAR)),
};

/** What is known of a method that `from` sent; undefined for one that is passed to the other side as it is. */
export function methodOf(from: Sender, method: string): MethodSpec | undefined {
  return LOOKUP[from].get(method);
}

/**
 * The capability path that a client needs to be sent this message of the agent. For `elicitation/create` it depends
 * on `params.mode`; undefined: any client may be asked.
 */
export function capabilityFor(method: string, params: unknown): string | undefined {
  const spec = methodOf('agent', method);
  if (method !== 'elicitation/create') return spec?.capability;
  const mode = typeof params === 'object' && params !== null && 'mode' in params ? params.mode : undefined;
  return typeof mode === 'string' ? `elicitation.${mode}` : spec?.capability;
}

/** Whether `clientCapabilities` advertise a dotted path: `true` or an object; false, null and absent are no. */
export function advertises(clientCapabilities: unknown, path: string): boolean {
  let value = clientCapabilities;
  for (const key of path.split('.')) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, key)) return false;
    value = (value as Readonly<Record<string, unknown>>)[key];
  }
  return value === true || (typeof value === 'object' && value !== null);
}

type Scope = MethodSpec['scope'];
type Extra = Pick<MethodSpec, 'sideEffect' | 'capability' | 'secret' | 'refused'>;

function request(
  scope: Scope,
  answeredBy: MethodSpec['answeredBy'],
  durable: MethodSpec['durable'],
  role: MethodSpec['role'],
  extra: Extra = {},
): MethodSpec {
  return Object.freeze({ kind: 'request', scope, answeredBy, durable, role, ...extra });
}

function notification(
  scope: Scope,
  answeredBy: MethodSpec['answeredBy'],
  durable: MethodSpec['durable'],
  role: MethodSpec['role'],
  extra: Extra = {},
): MethodSpec {
  return Object.freeze({ kind: 'notification', scope, answeredBy, durable, role, ...extra });
}

function ownedByOne(capability: string): MethodSpec {
  return request('session', 'client', 'no', 'controller', { sideEffect: true, capability });
}
