/**
 * What the store says of itself, in its `meta` database: its format version, its id, the next session number, which ids
 * are those of forgotten sessions, and the file that it was written to. A store that finds itself in another file is a
 * copy; the cursors of the original must not open it, so every log gets a new id.
 */
import { randomBytes } from 'node:crypto';
import { statSync } from 'node:fs';
import { dataFile } from './data-file.ts';
import type { SessionRow } from './event-log.ts';
import { ForgottenIds } from './forgotten-ids.ts';
import { FORMAT_VERSION, type FormatPlan, type Migration, planFormat } from './format-version.ts';
import { StoreOpenError } from './store-error.ts';

/** The part of an LMDB database that is needed here. */
export interface Table {
  get(key: Buffer, options?: object): Buffer | undefined;
  getBinary(key: Buffer): Buffer | undefined;
  getRange(options?: { limit?: number }): Iterable<{ key: Buffer; value: Buffer }>;
  put(key: Buffer, value: Buffer): Promise<boolean>;
}

export interface Tables {
  readonly root: { batch(action: () => void): Promise<boolean> };
  readonly events: Table;
  readonly sessions: Table;
  readonly meta: Table;
}

export const META = {
  format: Buffer.from('format'),
  store: Buffer.from('store'),
  nextNum: Buffer.from('next_num'),
  home: Buffer.from('home'),
  forgotten: Buffer.from('forgotten'),
} as const;

/** The steps to a version, each one commit. */
export interface FormatChain {
  readonly steps: readonly Migration<Tables>[];
  readonly target: number;
}

/** No steps yet. */
const CHAIN: FormatChain = { steps: [], target: FORMAT_VERSION };

const NO_INODE = 0;

export function json(value: unknown): Buffer {
  return Buffer.from(JSON.stringify(value));
}

export function readJson(table: Table, key: Buffer): unknown {
  const value = table.getBinary(key);
  return value && JSON.parse(value.toString());
}

/**
 * Makes a new store, brings an old one up to date, renews the log ids of a copy. Returns the store's id.
 * @throws StoreOpenError `newer`, `damaged`
 */
export async function prepareStore(tables: Tables, dir: string, now: number, chain = CHAIN): Promise<string> {
  const { meta, root } = tables;
  const plan = planOf(tables, dir, chain);
  if (plan.plan === 'create') {
    const id = randomBytes(8).toString('hex');
    await root.batch(() => {
      void meta.put(META.format, json(chain.target));
      void meta.put(META.store, json({ id, createdAt: now }));
      void meta.put(META.home, json(inodeOf(dir)));
    });
    return id;
  }
  if (plan.plan === 'migrate') {
    for (const step of plan.steps) {
      await root.batch(() => {
        step.run(tables);
        void meta.put(META.format, json(step.from + 1));
      });
    }
  }
  if (readJson(meta, META.home) !== inodeOf(dir)) await renewLogIds(tables, dir);
  return storeIdOf(tables, dir);
}

/**
 * The store's id as a reader sees it, who can neither make nor change a store.
 * @throws StoreOpenError `missing`, `newer`, `damaged`
 */
export function readStoreId(tables: Tables, dir: string): string {
  const { plan } = planOf(tables, dir, CHAIN);
  if (plan === 'create') throw new StoreOpenError('missing', `${dir} has no store`);
  if (plan === 'migrate') throw new StoreOpenError('damaged', `${dir} needs a migration: start the sidecar on it`);
  return storeIdOf(tables, dir);
}

/**
 * @param options of the read
 * @throws StoreOpenError `newer`, `damaged`
 */
export function readForgotten(meta: Table, dir: string, options: object = {}): ForgottenIds {
  const ids = ForgottenIds.read(meta.get(META.forgotten, options));
  if (typeof ids !== 'string') return ids;
  const why = ids === 'newer' ? 'were written by a newer version' : 'cannot be read';
  throw new StoreOpenError(ids, `${dir}: the ids of sessions that were deleted ${why}`);
}

type GoodPlan = Exclude<FormatPlan<Tables>, { plan: 'newer' | 'damaged' }>;

function planOf(tables: Tables, dir: string, { steps, target }: FormatChain): GoodPlan {
  const empty = isEmpty(tables.events) && isEmpty(tables.sessions);
  const plan = planFormat(readJson(tables.meta, META.format), empty, steps, target);
  if (plan.plan === 'damaged') throw new StoreOpenError('damaged', `${dir}: ${plan.detail}`);
  if (plan.plan === 'newer') {
    throw new StoreOpenError(
      'newer',
      `${dir} was written by a newer version (format ${plan.found}, this version knows up to ${target})`,
    );
  }
  return plan;
}

function isEmpty(table: Table): boolean {
  return [...table.getRange({ limit: 1 })].length === 0;
}

function storeIdOf(tables: Tables, dir: string): string {
  const store = readJson(tables.meta, META.store) as { id?: unknown } | undefined;
  if (typeof store?.id !== 'string') throw new StoreOpenError('damaged', `${dir} has no store id`);
  return store.id;
}

function inodeOf(dir: string): number {
  return statSync(dataFile(dir)).ino;
}

/** A backup that is put back into the very file that it was made of must be seen to be one. */
export async function markAsCopy({ root, meta }: Tables): Promise<void> {
  await root.batch(() => void meta.put(META.home, json(NO_INODE)));
}

async function renewLogIds({ root, sessions, meta }: Tables, dir: string): Promise<void> {
  const rows = [...sessions.getRange()].map(({ key, value }) => ({
    key: Buffer.from(key),
    row: JSON.parse(value.toString()) as SessionRow,
  }));
  await root.batch(() => {
    for (const { key, row } of rows) {
      void sessions.put(key, json({ ...row, logId: randomBytes(6).toString('hex') }));
    }
    void meta.put(META.home, json(inodeOf(dir)));
  });
}
