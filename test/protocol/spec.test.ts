import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';

const root = new URL('../../', import.meta.url);
const spec = readFileSync(new URL('protocol/SPEC.md', root), 'utf8');
const ruleIds = [...spec.matchAll(/^- \*\*([A-Z]{2}\d+)\*\* /gm)].map((found) => found[1] as string);
const groups = [...spec.matchAll(/^## ([A-Z]{2}) /gm)].map((found) => found[1] as string);

/** Rule ids at the start of test titles, each with the first file that cites it. */
function citations(): Map<string, string> {
  const cited = new Map<string, string>();
  const files = readdirSync(new URL('test/', root), { recursive: true, encoding: 'utf8' });
  for (const file of files.filter((name) => /\.(test|contract|fuzz)\.ts$/.test(name))) {
    const source = readFileSync(new URL(`test/${file}`, root), 'utf8');
    for (const [, ids] of source.matchAll(/['"`]((?:\[[A-Z]{2}\d+\] ?)+)/g)) {
      for (const [, id] of (ids as string).matchAll(/\[([A-Z]{2}\d+)\]/g))
        if (!cited.has(id as string)) cited.set(id as string, file);
    }
  }
  return cited;
}

describe('protocol/SPEC.md', () => {
  const cited = citations();

  it('numbers the rules of every group from 1 without a gap', () => {
    const expected = groups.flatMap((group) => {
      const count = ruleIds.filter((id) => id.startsWith(group)).length;
      return Array.from({ length: count }, (_, i) => `${group}${i + 1}`);
    });
    expect(ruleIds).toEqual(expected);
    expect(new Set(groups).size).toBe(groups.length);
    expect(ruleIds.length).toBeGreaterThan(80);
  });

  it('says each rule in one sentence', () => {
    for (const line of spec.split('\n').filter((text) => text.startsWith('- **'))) {
      expect(line, line).toMatch(/^- \*\*[A-Z]{2}\d+\*\* [^\s].*\.$/);
      expect(line.slice(0, -1), line).not.toMatch(/\. [A-Z]/);
    }
  });

  it('has every rule that a test title cites', () => {
    const unknown = [...cited].filter(([id]) => !ruleIds.includes(id)).map(([id, file]) => `${id} in test/${file}`);
    expect(unknown).toEqual([]);
  });

  it('has no rule without a test', () => {
    expect(ruleIds.filter((id) => !cited.has(id))).toEqual([]);
  });
});
