import { describe, expect, it } from 'vitest';
import { displayWidth, fitted, hasColour, padded, paint, Progress } from '../../../proxy/cli/terminal.ts';

describe('a terminal', () => {
  it('gets colour unless NO_COLOR says otherwise; a pipe gets none', () => {
    expect(hasColour({ isTTY: true }, {})).toBe(true);
    expect(hasColour({ isTTY: true }, { NO_COLOR: '' })).toBe(true);
    expect(hasColour({ isTTY: true }, { NO_COLOR: '1' })).toBe(false);
    expect(hasColour({ isTTY: true }, { TERM: 'dumb' })).toBe(false);
    expect(hasColour({}, {})).toBe(false);
    expect(paint('text', 'bold', true)).toBe('\u001b[1mtext\u001b[0m');
    expect(paint('text', 'bold', false)).toBe('text');
    expect(paint('', 'bold', true)).toBe('');
  });

  it('shows columns as wide as what is in them', () => {
    expect(displayWidth('abc')).toBe(3);
    expect(displayWidth('日本')).toBe(4);
    expect(displayWidth('e\u0301')).toBe(1);
    expect(displayWidth('\u{1f600}')).toBe(2);
    expect(padded('日', 4)).toBe('日  ');
  });

  it('gets lines that fit, a pipe gets them whole', () => {
    expect(fitted('x'.repeat(50), 30)).toBe(`${'x'.repeat(29)}…`);
    expect(fitted('日'.repeat(20), 30)).toBe(`${'日'.repeat(14)}…`);
    expect(fitted('x'.repeat(30), 30)).toBe('x'.repeat(30));
    expect(fitted('x'.repeat(50), undefined)).toBe('x'.repeat(50));
  });

  it('is told how far long work has come, and the line goes at the end; short work tells nothing', () => {
    let now = 0;
    const written: string[] = [];
    const progress = new Progress('reading', { on: true, now: () => now, write: (text) => written.push(text) });
    progress.step(1, 10);
    now = 1500;
    progress.step(5, 10);
    now = 1600;
    progress.step(6, 10);
    now = 1800;
    progress.step(7, 10);
    progress.end();
    expect(written).toEqual(['\rreading: 5 of 10 (50 %)', '\rreading: 7 of 10 (70 %)', `\r${' '.repeat(23)}\r`]);
    const short: string[] = [];
    const done = new Progress('reading', { on: true, now: () => now, write: (text) => short.push(text) });
    done.step(1, 2);
    done.end();
    expect(short).toEqual([]);
  });
});
