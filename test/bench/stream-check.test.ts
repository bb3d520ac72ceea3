import { describe, expect, it } from 'vitest';
import { deltaLine, eventLine, groupLines, parseScript } from './script.ts';
import { StreamCheck } from './stream-check.ts';

function feed(script: string, lines: readonly string[]): StreamCheck {
  const check = new StreamCheck(parseScript(script));
  const text = lines.join('');
  const block = { bytes: Buffer.from(text, 'latin1'), text, readAtNs: 1 };
  let from = 0;
  for (const line of lines) {
    expect(check.take(block, from, from + line.length - 1)).toBe(true);
    from += line.length;
  }
  return check;
}

function linesOf(script: string): string[] {
  const plan = parseScript(script);
  const groups = Array.from({ length: plan.groups }, (_, group) => groupLines(plan, 's', group, 0));
  return groups.join('').match(/.*\n/g) ?? [];
}

/** Two neighbouring deltas in one message, as the sidecar sends what is pending. */
function merged(first: string, second: string): string {
  const end = first.indexOf('"', first.indexOf('"text":"') + 8);
  return first.slice(0, end) + second.slice(second.indexOf('"text":"') + 8);
}

describe('the check that a benchmark trusts', () => {
  const scripts = ['full 4', 'mixed 2:2 2', 'paced 3 every 5', 'tool 4 every 5'];

  it.each(scripts)('accepts all of "%s", and neighbouring deltas as one message', (script) => {
    const lines = linesOf(script);
    expect(() => feed(script, lines).assertComplete()).not.toThrow();
    if (script.startsWith('tool')) return;
    const [first = '', second = '', ...rest] = lines;
    expect(() => feed(script, [merged(first, second), ...rest]).assertComplete()).not.toThrow();
  });

  it.each(scripts)(
    'refuses "%s" with any line lost, twice, exchanged with the next, or with a character changed',
    (script) => {
      const lines = linesOf(script);
      for (const [i, line] of lines.entries()) {
        const before = lines.slice(0, i);
        const after = lines.slice(i + 1);
        const changed = line.replace('lait', 'laid');
        const broken = [
          [...before, ...after],
          [...before, line, line, ...after],
          [...before, changed, ...after],
          ...(after.length > 0 ? [[...before, after[0] ?? '', line, ...after.slice(1)]] : []),
        ];
        for (const stream of broken) expect(() => feed(script, stream).assertComplete()).toThrow();
      }
    },
  );

  it('refuses text merged across a tool event', () => {
    const lines = [merged(deltaLine('s', 0, 0), deltaLine('s', 1, 0)), eventLine('s', 0, 0), eventLine('s', 1, 0)];
    expect(() => feed('mixed 1:2 2', lines).assertComplete()).toThrow(/other text/);
  });
});
