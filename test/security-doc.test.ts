/** SECURITY.md says of each threat what a test shows, in the words of its title. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { BOUND_NAMES, BOUNDS } from '../proxy/bounds.ts';

const ROOT = join(import.meta.dirname, '..');

function titles(): Map<string, string> {
  const found = new Map<string, string>();
  const files = readdirSync(join(ROOT, 'test'), { recursive: true, encoding: 'utf8' });
  for (const file of files.filter((name) => name.endsWith('.test.ts'))) {
    const source = readFileSync(join(ROOT, 'test', file), 'utf8');
    for (const [, id = '', title = ''] of source.matchAll(/it\(\s*['`](?:\[\w+\] )*(T\d+): (.*?)['`],/g)) {
      expect(found.has(id), `${id} twice`).toBe(false);
      found.set(id, title);
    }
  }
  return found;
}

it('every threat of SECURITY.md is the title of a test, and the other way round', () => {
  const text = readFileSync(join(ROOT, 'SECURITY.md'), 'utf8');
  const threats = new Map([...text.matchAll(/^- \*\*(T\d+)\*\* (.*)$/gm)].map(([, id = '', line = '']) => [id, line]));
  expect(threats.size).toBeGreaterThan(20);
  expect([...threats.keys()]).toEqual(Array.from(threats, (_, i) => `T${i + 1}`));
  expect(Object.fromEntries(titles())).toEqual(Object.fromEntries(threats));
});

it('every bound says its limit and what happens there', () => {
  for (const name of BOUND_NAMES) {
    expect(BOUNDS[name].limit, name).not.toBe('');
    expect(BOUNDS[name].policy, name).not.toBe('');
  }
});
