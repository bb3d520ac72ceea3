/** Our `_meta.sidecar` in results and params that we pass on. */
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

/** A result or params object with members added to its `_meta.sidecar`; everything else byte for byte. */
export function withSidecarMeta(object: string, sidecar: Readonly<Record<string, unknown>>): string {
  if (!object.startsWith('{')) return object;
  const value = stringifyWire(sidecar);
  const meta = memberAt(object, ['_meta']);
  if (!meta) return splice(object, [addMember(object, 0, '_meta', `{"sidecar":${value}}`)]);
  const metaText = object.slice(meta.valueStart, meta.valueEnd);
  if (!metaText.startsWith('{')) return splice(object, [setValue(meta, `{"sidecar":${value}}`)]);
  const cleared = splice(metaText, removeMembers(metaText, members(metaText), ['sidecar']));
  return splice(object, [setValue(meta, splice(cleared, [addMember(cleared, 0, 'sidecar', value)]))]);
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
