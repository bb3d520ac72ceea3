/**
 * What may not be in a trace: credentials. Params and results of the methods that hold them, everything of `mcpServers`
 * but the names, values of `env` and `headers`, and strings under keys that sound like secrets. What people and agents
 * said stays: it is what a bug report is about.
 */
import { METHODS, type MethodSpec } from '../../protocol/methods.ts';
import { type Edit, items, member, members, setValue, splice } from '../../protocol/wire-text.ts';
import { REDACTED, redactJson } from '../redact.ts';

const QUOTED = `"${REDACTED}"`;
/** Keys whose string values are taken out at any depth. Keys inside of texts are escaped and so not seen. */
const SECRET_VALUE =
  /("[^"\\]*(?:token|secret|passw(?:or)?d|api[-_]?key|authorization|credentials?|cookie)"\s*:\s*)"(?:[^"\\]|\\.)*"/gi;
const NAMED_VALUES = /"(?:env|headers)"\s*:\s*[[{]/;
const MAX_PENDING = 10_000;

const SECRET_METHODS: ReadonlySet<string> = new Set(
  [METHODS.client, METHODS.agent].flatMap((table) =>
    Object.entries(table as Readonly<Record<string, MethodSpec>>).flatMap(([name, spec]) =>
      spec.secret ? [name] : [],
    ),
  ),
);

function isSecret(method: string): boolean {
  return SECRET_METHODS.has(method) || /^_?(auth|providers)\//.test(method);
}

/** Redacts the messages of one peer; it remembers which answers are to secret requests. */
export class TraceRedaction {
  readonly #patterns: readonly RegExp[];
  /** Ids of secret requests without an answer yet, by the direction of the request. */
  readonly #pending = { in: new Set<string>(), out: new Set<string>() };

  constructor(patterns: readonly RegExp[]) {
    this.#patterns = patterns;
  }

  /** @param wire a JSON object, wire text @param direction in: from the peer */
  message(wire: string, direction: 'in' | 'out'): string {
    const list = members(wire);
    const method = member(list, 'method');
    const id = member(list, 'id');
    const idText = id && wire.slice(id.valueStart, id.valueEnd);
    let clean = wire;
    if (method) {
      const name = wire.slice(method.valueStart + 1, method.valueEnd - 1);
      const params = member(list, 'params');
      if (isSecret(name)) {
        if (idText !== undefined) this.#await(direction, idText);
        if (params) clean = splice(wire, [setValue(params, QUOTED)]);
      } else if (params) clean = withoutSecrets(wire, name, params.valueStart);
    } else if (idText !== undefined && this.#pending[direction === 'in' ? 'out' : 'in'].delete(idText)) {
      const result = member(list, 'result') ?? member(list, 'error');
      if (result) clean = splice(wire, [setValue(result, QUOTED)]);
    }
    return this.#patterns.length === 0 ? keysCleaned(clean) : this.#patternsCleaned(keysCleaned(clean));
  }

  /** Something that is no JSON object. @param text not wire text */
  text(text: string): string {
    return this.#patterns.reduce((clean, pattern) => clean.replace(pattern, REDACTED), text);
  }

  #patternsCleaned(wire: string): string {
    const text = Buffer.from(wire, 'latin1').toString('utf8');
    return Buffer.from(redactJson(text, this.#patterns), 'utf8').toString('latin1');
  }

  #await(direction: 'in' | 'out', id: string): void {
    const pending = this.#pending[direction];
    if (pending.size >= MAX_PENDING) pending.clear();
    pending.add(id);
  }
}

function keysCleaned(wire: string): string {
  return wire.replace(SECRET_VALUE, `$1${QUOTED}`);
}

/** `mcpServers`, `env` and `headers` directly in the params, and the query of an address that a person is sent to. */
function withoutSecrets(wire: string, method: string, paramsStart: number): string {
  const visit = method === 'elicitation/create';
  if (!visit && !wire.includes('"mcpServers"') && !NAMED_VALUES.test(wire)) return wire;
  const edits: Edit[] = [];
  for (const found of members(wire, paramsStart)) {
    if (found.key === 'mcpServers') {
      const names = items(wire, found.valueStart).map(([start]) => nameOnly(wire, start));
      edits.push(setValue(found, `[${names.join(',')}]`));
    } else if (found.key === 'env' || found.key === 'headers') edits.push(setValue(found, QUOTED));
    else if (visit && found.key === 'url') {
      const address = /^[^?#]*/.exec(wire.slice(found.valueStart, found.valueEnd))?.[0] ?? '';
      if (!address.endsWith('"')) edits.push(setValue(found, `${address}?${REDACTED}"`));
    }
  }
  return edits.length === 0 ? wire : splice(wire, edits);
}

function nameOnly(wire: string, start: number): string {
  const name = member(members(wire, start), 'name');
  return name ? `{"name":${wire.slice(name.valueStart, name.valueEnd)},"redacted":true}` : '{"redacted":true}';
}
