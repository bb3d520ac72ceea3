/** What a server does with its store by itself: it prunes as its options say, and frees what was left half freed. */
import { limitsNothing, type Retention } from '../../storage/prune.ts';
import type { Logger } from '../log.ts';
import { orphans } from '../../storage/retention.ts';
import { removeOrphans, type StoreHost, sweepAll } from './store-host.ts';

/** Not in the way of a start. */
const FIRST_MS = 1000;
const EVERY_MS = 10 * 60_000;

/** Returns what ends it. */
export function startKeeper(host: StoreHost, retention: Retention, logger: Logger): () => void {
  let stopped = false;
  let timer: NodeJS.Timeout | undefined;
  const round = async (): Promise<void> => {
    await removeOrphans(host, orphans(host.log));
    await sweepAll(host);
    if (limitsNothing(retention.sessions) && limitsNothing(retention.events)) return;
    const { prune } = await import('./prune-command.ts');
    await prune(host, { retention, dryRun: false, stopped: () => stopped }, (pruned) => logger.info(pruned, 'pruned'));
  };
  const again = (ms: number): void => {
    timer = setTimeout(() => {
      round()
        .catch((error: unknown) => {
          if (!stopped) logger.warn({ err: error }, 'retention');
        })
        .finally(() => {
          if (!stopped) again(EVERY_MS);
        });
    }, ms).unref();
  };
  again(FIRST_MS);
  return () => {
    stopped = true;
    clearTimeout(timer);
  };
}
