import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { waitFor } from './wait-for.ts';

/** Resolves when the last file that a start makes is there, under its name. */
export async function storeAtRest(store: string): Promise<void> {
  await waitFor('the ballast', () => existsSync(join(store, 'ballast')));
}
