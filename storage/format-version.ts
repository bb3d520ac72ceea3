/**
 * The version of the store as a whole: which databases it has and what their keys and rows mean. Records have their
 * own version (storage/event-codec.ts). A store of an older version is brought up step by step; a newer one is refused.
 *
 * Version history:
 * 1  first release: `events` (u32 session, u48 seq -> record), `sessions` (sessionId -> row), `meta`; the value
 *    `forgotten` in `meta` may be missing
 */
export const FORMAT_VERSION = 1;

/** One step of the chain, from version `from` to `from + 1`. `Store` is what the engine gives a migration to work on. */
export interface Migration<Store> {
  readonly from: number;
  run(store: Store): void;
}

export type FormatPlan<Store> =
  | { readonly plan: 'create' }
  | { readonly plan: 'open' }
  | { readonly plan: 'migrate'; readonly steps: readonly Migration<Store>[] }
  | { readonly plan: 'newer'; readonly found: number }
  | { readonly plan: 'damaged'; readonly detail: string };

/**
 * What must be done with a store whose `meta` says `stored`.
 * @param stored the value found, undefined when there is none
 * @param empty the store holds no session and no event
 */
export function planFormat<Store>(
  stored: unknown,
  empty: boolean,
  migrations: readonly Migration<Store>[],
  target = FORMAT_VERSION,
): FormatPlan<Store> {
  if (stored === undefined) {
    return empty ? { plan: 'create' } : { plan: 'damaged', detail: 'it has events but no format version' };
  }
  if (typeof stored !== 'number' || !Number.isSafeInteger(stored) || stored < 1) {
    return { plan: 'damaged', detail: `its format version is ${JSON.stringify(stored)}` };
  }
  if (stored > target) return { plan: 'newer', found: stored };
  if (stored === target) return { plan: 'open' };
  const steps: Migration<Store>[] = [];
  for (let from = stored; from < target; from++) {
    const step = migrations.find((candidate) => candidate.from === from);
    if (!step) return { plan: 'damaged', detail: `there is no way from format version ${from} to ${from + 1}` };
    steps.push(step);
  }
  return { plan: 'migrate', steps };
}
