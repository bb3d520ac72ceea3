/** The local side's `initialize` as the sidecar gets it. */
import { type RequestMessage, isObject } from '../../protocol/json-rpc.ts';
import { parseWire, valueAt } from '../../protocol/wire-text.ts';
import { sidecarOf, withMembers, withParams, withSidecarMembers } from '../../protocol/sidecar-meta.ts';

/** With our opt-in, or its own when it has one (`aware`); then only the clientId is added. */
export function optIn(
  message: RequestMessage,
  self: { readonly clientId: string; readonly name?: string | undefined },
): { readonly wire: string; readonly aware: boolean } {
  const params = message.params ? message.wire.slice(message.params.valueStart, message.params.valueEnd) : '{}';
  const capabilities = valueAt(params, ['clientCapabilities']) ?? '{}';
  const value: unknown = parseWire(capabilities);
  const meta = isObject(value) ? value['_meta'] : undefined;
  const aware = isObject(meta) && isObject(meta['sidecar']);
  const own = aware ? sidecarOf(value) : {};
  const opted = withSidecarMembers(capabilities, {
    version: own['version'] ?? 1,
    clientId: own['clientId'] ?? self.clientId,
    ...(own['name'] === undefined && self.name !== undefined ? { name: self.name } : {}),
  });
  return { wire: withParams(message.wire, withMembers(params, { clientCapabilities: opted })), aware };
}
