import { readFileSync } from 'node:fs';
import * as nes from '@agentclientprotocol/sdk/experimental/nes';
import { PROXY_METHODS } from '@agentclientprotocol/sdk/unstable';
import * as stable from '@agentclientprotocol/sdk';
import { describe, expect, it } from 'vitest';
import {
  type AgentMethod,
  advertises,
  type ClientMethod,
  capabilityFor,
  METHODS,
  methodOf,
  type Sender,
} from '../../protocol/methods.ts';

interface SchemaMethod {
  readonly method: string;
  readonly from: Sender;
  readonly kind: 'request' | 'notification';
}

/** Every method that a schema file of the SDK names, by who sends it. `x-side` is the side that handles it. */
function schemaMethods(file: string): SchemaMethod[] {
  const url = new URL(import.meta.resolve(`@agentclientprotocol/sdk/schema/v1/${file}`));
  const schema = JSON.parse(readFileSync(url, 'utf8')) as {
    $defs: Record<string, { 'x-method'?: string; 'x-side'?: string }>;
  };
  const found: SchemaMethod[] = [];
  for (const [name, def] of Object.entries(schema.$defs)) {
    const method = def['x-method'];
    if (method === undefined || name.endsWith('Response')) continue;
    const kind = name.endsWith('Notification') ? 'notification' : 'request';
    // A conductor is our client; $/cancel_request goes both ways.
    if (def['x-side'] !== 'client') found.push({ method, from: 'client', kind });
    if (def['x-side'] === 'client' || def['x-side'] === 'protocol') found.push({ method, from: 'agent', kind });
  }
  return found;
}

const files = ['schema.json', 'schema.unstable.json'];
const inSchemas = files.flatMap(schemaMethods);
const ours = (method: string): boolean => /^_sidecar\/|^session\/(attach|detach)$/.test(method);

type Values<T> = T[keyof T];
// A method that the SDK knows and the table does not makes these two lines a compile error that names it.
const clientMethodsByType: ClientMethod[] = Object.values(nes.AGENT_METHODS) as Values<typeof nes.AGENT_METHODS>[];
const agentMethodsByType: AgentMethod[] = Object.values(nes.CLIENT_METHODS) as Values<typeof nes.CLIENT_METHODS>[];

describe('the method table', () => {
  it.each(files)('[MT1] has every method of %s, with its sender and kind', (file) => {
    const methods = schemaMethods(file);
    expect(methods.length).toBeGreaterThan(25);
    for (const { method, from, kind } of methods) {
      const spec = methodOf(from, method);
      expect(spec, `${method} sent by the ${from} is missing in protocol/methods.ts`).toBeDefined();
      expect([kind, 'either'], `${method} sent by the ${from} is a ${kind}`).toContain(spec?.kind);
    }
  });

  it("[MT1] has every method of the SDK's method lists", () => {
    const missing = [
      ...[...clientMethodsByType, ...Object.values(PROXY_METHODS), ...Object.values(stable.AGENT_METHODS)].filter(
        (method) => !methodOf('client', method),
      ),
      ...[...agentMethodsByType, ...Object.values(stable.CLIENT_METHODS)].filter(
        (method) => !methodOf('agent', method),
      ),
    ];
    expect(missing).toEqual([]);
  });

  it('[MT1] has nothing else but our own methods', () => {
    const known = new Set([
      ...inSchemas.map(({ from, method }) => `${from} ${method}`),
      ...Object.values(nes.AGENT_METHODS).map((method) => `client ${method}`),
    ]);
    const extra = [
      ...Object.keys(METHODS.client).map((method) => ['client', method] as const),
      ...Object.keys(METHODS.agent).map((method) => ['agent', method] as const),
    ].filter(([from, method]) => !ours(method) && !known.has(`${from} ${method}`));
    expect(extra).toEqual([]);
    expect(Object.keys(METHODS.sidecar).every(ours)).toBe(true);
  });

  it('[MT2] does not know other methods, nor names that objects have by themselves', () => {
    for (const method of ['_vendor/thing', 'session/unheard', 'toString', '__proto__', 'constructor'])
      for (const from of ['client', 'agent', 'sidecar'] as const) expect(methodOf(from, method)).toBeUndefined();
    expect(methodOf('agent', 'session/prompt')).toBeUndefined();
  });

  it('[MT3] gives every request that acts on the machine of a client to one controller with the capability', () => {
    for (const [method, spec] of Object.entries(METHODS.agent)) {
      expect(spec.sideEffect === true, method).toBe(/^(fs|terminal|mcp)\//.test(method));
      if (spec.sideEffect) expect([spec.role, spec.durable], method).toEqual(['controller', 'no']);
      if (/^(fs|terminal)\//.test(method)) expect(spec.capability, method).toBeDefined();
    }
  });

  it('[MT4] lets an observer send only what changes nothing', () => {
    const observers = Object.entries(METHODS.client).filter(([, spec]) => spec.role === 'observer');
    for (const [method, spec] of observers) expect(spec.durable, method).toBe('no');
    expect(observers.map(([method]) => method)).not.toContain('session/prompt');
    expect(methodOf('client', 'session/cancel')?.role).toBe('controller');
    expect(methodOf('client', 'session/load')?.role).toBe('observer');
  });

  it('[MT5] marks what holds credentials, and never stores it', () => {
    for (const [method, spec] of [...Object.entries(METHODS.client), ...Object.entries(METHODS.agent)]) {
      if (/^(authenticate$|auth\/|providers\/|mcp\/)/.test(method)) expect(spec.secret, method).toBe(true);
      if (spec.secret) expect(spec.durable, method).toBe('no');
    }
  });

  it('cannot be changed', () => {
    expect(Object.isFrozen(METHODS)).toBe(true);
    for (const table of Object.values(METHODS)) {
      expect(Object.isFrozen(table)).toBe(true);
      for (const spec of Object.values(table)) expect(Object.isFrozen(spec)).toBe(true);
    }
  });
});

describe('capabilities of a client', () => {
  it.each([
    [{ fs: { readTextFile: true } }, 'fs.readTextFile', true],
    [{ fs: { readTextFile: false } }, 'fs.readTextFile', false],
    [{ fs: null }, 'fs.readTextFile', false],
    [{ terminal: true }, 'terminal', true],
    [{ elicitation: { form: {} } }, 'elicitation.form', true],
    [{ elicitation: { form: null } }, 'elicitation.form', false],
    [{ elicitation: { form: {} } }, 'elicitation.url', false],
    [{}, 'toString', false],
    [undefined, 'terminal', false],
    ['terminal', 'length', false],
  ])('[MT3] %j advertises %s: %s', (capabilities, path, expected) => {
    expect(advertises(capabilities, path)).toBe(expected);
  });

  it('[MT3] an elicitation needs the capability of its mode', () => {
    expect(capabilityFor('elicitation/create', { mode: 'form' })).toBe('elicitation.form');
    expect(capabilityFor('elicitation/create', { mode: 'url' })).toBe('elicitation.url');
    expect(capabilityFor('elicitation/create', { mode: 7 })).toBe('elicitation');
    expect(capabilityFor('elicitation/create', null)).toBe('elicitation');
    expect(capabilityFor('fs/write_text_file', {})).toBe('fs.writeTextFile');
    expect(capabilityFor('session/request_permission', {})).toBeUndefined();
    expect(capabilityFor('_vendor/ask', {})).toBeUndefined();
  });
});
