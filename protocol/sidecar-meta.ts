/** Our `_meta.sidecar` in params and results: read parsed, written in wire text; everything else stays byte for byte. */
import { type JsonObject, isObject } from './json-rpc.ts';
import { addMember, memberAt, members, removeMembers, setValue, splice, stringifyWire, valueAt } from './wire-text.ts';

/** `_meta.sidecar` of params or a result. */
export function sidecarOf(value: unknown): JsonObject {
  const meta = isObject(value) ? value['_meta'] : undefined;
  const sidecar = isObject(meta) ? meta['sidecar'] : undefined;
  return isObject(sidecar) ? sidecar : {};
}

/**
 * Params or a result of the agent with this as its `_meta.sidecar`. What the agent had there itself moves to
 * `_meta.sidecar.agent`, as in updates. Wire text that is no object stays.
 */
export function withSidecarMeta(object: string, sidecar: Readonly<Record<string, unknown>>): string {
  const own = valueAt(object, ['_meta', 'sidecar']);
  const text = stringifyWire(sidecar);
  return withSidecarText(object, own === undefined ? text : withMembers(text, { agent: `{"sidecar":${own}}` }));
}

/** Params with members set in their `_meta.sidecar`; its other members stay. */
export function withSidecarMembers(params: string, set: Readonly<Record<string, unknown>>): string {
  const wires = Object.fromEntries(Object.entries(set).map(([key, value]) => [key, stringifyWire(value)]));
  return withSidecarText(
    params.startsWith('{') ? params : '{}',
    withMembers(valueAt(params, ['_meta', 'sidecar']) ?? '{}', wires),
  );
}

function withSidecarText(object: string, sidecar: string): string {
  if (!object.startsWith('{')) return object;
  const meta = memberAt(object, ['_meta']);
  if (!meta) return splice(object, [addMember(object, 0, '_meta', `{"sidecar":${sidecar}}`)]);
  return splice(object, [setValue(meta, withMembers(object.slice(meta.valueStart, meta.valueEnd), { sidecar }))]);
}

/** An object with members set; earlier ones of the same name go. Values are wire text. */
export function withMembers(object: string, set: Readonly<Record<string, string>>): string {
  const text = object.startsWith('{') ? object : '{}';
  const keys = Object.keys(set);
  let out = splice(text, removeMembers(text, members(text), keys));
  for (const key of keys.toReversed()) out = splice(out, [addMember(out, 0, key, set[key] as string)]);
  return out;
}

/** A message with other params. */
export function withParams(wire: string, params: string): string {
  const found = memberAt(wire, ['params']);
  return found ? splice(wire, [setValue(found, params)]) : splice(wire, [addMember(wire, 0, 'params', params)]);
}

/**
 * Params without what clients tell us in `_meta`: `sidecar`, and for the methods that take it as an alias `cursor`. A
 * `_meta` that held nothing else goes too.
 */
export function withoutSidecarMeta(params: string, keys: readonly string[] = ['sidecar']): string {
  const meta = valueAt(params, ['_meta']);
  if (meta === undefined || !keys.some((key) => meta.includes(`"${key}"`))) return params;
  const cleared = splice(meta, removeMembers(meta, members(meta), keys));
  if (cleared === meta) return params;
  const outer = members(params);
  if (members(cleared).length === 0) return splice(params, removeMembers(params, outer, ['_meta']));
  const found = memberAt(params, ['_meta']);
  return found ? splice(params, [setValue(found, cleared)]) : params;
}

/** An update without what only clients that opted in are told. What the agent had there itself stays. */
export function withoutSidecar(wire: string): string {
  const meta = memberAt(wire, ['params', '_meta']);
  if (!meta) return wire;
  const text = wire.slice(meta.valueStart, meta.valueEnd);
  const list = members(text);
  const own = list.find(({ key }) => key === 'sidecar');
  if (!own) return wire;
  const agent = valueAt(text, ['sidecar', 'agent']);
  const cleared =
    agent === undefined
      ? splice(text, removeMembers(text, list, ['sidecar']))
      : splice(text, [setValue(own, `{"agent":${agent}}`)]);
  return splice(wire, [setValue(meta, cleared)]);
}
