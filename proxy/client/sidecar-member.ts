/** Reading and writing `params._meta.sidecar` in wire text; everything else stays byte for byte. */
import { type JsonObject, isObject } from '../../protocol/json-rpc.ts';
import {
  addMember,
  memberAt,
  members,
  removeMembers,
  setValue,
  splice,
  stringifyWire,
  valueAt,
} from '../../protocol/wire-text.ts';

/** The object at `path`, `{}` when there is none. */
function objectAt(text: string, path: readonly string[]): string {
  const found = valueAt(text, path);
  return found?.startsWith('{') ? found : '{}';
}

/** An object with members set; earlier ones of the same name go. Values are wire text. */
export function withMembers(object: string, set: Readonly<Record<string, string>>): string {
  const text = object.startsWith('{') ? object : '{}';
  const keys = Object.keys(set);
  let out = splice(text, removeMembers(text, members(text), keys));
  for (const key of keys.toReversed()) out = splice(out, [addMember(out, 0, key, set[key] as string)]);
  return out;
}

/** Params with members set in their `_meta.sidecar`. */
export function withSidecar(params: string, set: Readonly<Record<string, unknown>>): string {
  const wires = Object.fromEntries(Object.entries(set).map(([key, value]) => [key, stringifyWire(value)]));
  const sidecar = withMembers(objectAt(params, ['_meta', 'sidecar']), wires);
  return withMembers(params, { _meta: withMembers(objectAt(params, ['_meta']), { sidecar }) });
}

/** A message with other params. */
export function withParams(wire: string, params: string): string {
  const found = memberAt(wire, ['params']);
  return found ? splice(wire, [setValue(found, params)]) : splice(wire, [addMember(wire, 0, 'params', params)]);
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

/** `_meta.sidecar` of params or a result. */
export function sidecarOf(value: unknown): JsonObject {
  const meta = isObject(value) ? value['_meta'] : undefined;
  const sidecar = isObject(meta) ? meta['sidecar'] : undefined;
  return isObject(sidecar) ? sidecar : {};
}
