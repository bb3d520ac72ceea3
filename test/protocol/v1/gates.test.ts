import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { GATES, gateOf, gatesOf, withoutItemsOfType } from '../../../protocol/v1/gates.ts';
import { UPDATE_KINDS } from '../../../protocol/v1/update-kinds.ts';

interface Variant {
  readonly description?: string;
  readonly properties: { readonly sessionUpdate: { readonly const: string } };
}

describe('gates', () => {
  const url = new URL(import.meta.resolve('@agentclientprotocol/sdk/schema/v1/schema.unstable.json'));
  const schema = JSON.parse(readFileSync(url, 'utf8')) as { $defs: { SessionUpdate: { oneOf: Variant[] } } };
  const variants = schema.$defs.SessionUpdate.oneOf;

  it('[GA1] every sessionUpdate of the schema has a number, and there are no others', () => {
    expect(Object.keys(UPDATE_KINDS).toSorted()).toEqual(
      variants.map((variant) => variant.properties.sessionUpdate.const).toSorted(),
    );
  });

  it('[GA1] every variant whose description names a client capability has that gate', () => {
    const gated = variants.filter((variant) => variant.description?.includes('Client capability'));
    expect(gated.length).toBeGreaterThanOrEqual(3);
    for (const { description, properties } of gated) {
      const named = /the `([\w.]+)` Client capability/.exec(description ?? '')?.[1];
      expect(gateOf(properties.sessionUpdate.const), properties.sessionUpdate.const).toBe(named);
    }
  });

  it('[GA1] every unstable variant has a gate', () => {
    for (const { description, properties } of variants) {
      if (description?.includes('**UNSTABLE**')) expect(gateOf(properties.sessionUpdate.const)).toBeDefined();
    }
  });

  it('[GA1] what every client knows, and what nobody knows, has no gate', () => {
    for (const kind of ['agent_message_chunk', 'plan', 'tool_call', '_vendor', 'toString']) {
      expect(gateOf(kind)).toBeUndefined();
    }
  });

  it('[GA2] opens what was advertised with an object or true', () => {
    expect(gatesOf(undefined)).toEqual(new Set());
    expect(gatesOf({ session: null, plan: null, subagents: false })).toEqual(new Set());
    expect(
      gatesOf({ session: { notices: {}, compaction: {}, configOptions: { boolean: {} } }, plan: {}, subagents: {} }),
    ).toEqual(new Set(GATES));
  });

  it('[GA3] takes boolean options out and leaves the others byte for byte', () => {
    const select = '{ "id":"a","type" : "select", "n":1.0 }';
    const text = `[ ${select} ,{"type":"boolean","id":"b"}, 7 ]`;
    expect(withoutItemsOfType(text, 'boolean')).toBe(`[${select},7]`);
    expect(withoutItemsOfType(`[ ${select} ]`, 'boolean')).toBe(`[ ${select} ]`);
    expect(withoutItemsOfType('[{"type":"boolean"}]', 'boolean')).toBe('[]');
  });
});
