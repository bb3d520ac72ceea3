/** The product's version; a test compares it with package.json. */
export const VERSION = '0.1.0';

/** `1.10.0` is newer than `1.9.3`; what follows a `-` or `+` does not count. */
export function isNewer(version: string, than: string): boolean {
  const a = numbersOf(version);
  const b = numbersOf(than);
  for (let i = 0; i < 3; i++) if ((a[i] ?? 0) !== (b[i] ?? 0)) return (a[i] ?? 0) > (b[i] ?? 0);
  return false;
}

function numbersOf(version: string): number[] {
  return (version.split(/[-+]/, 1)[0] ?? '').split('.').map((part) => Number(part) || 0);
}
