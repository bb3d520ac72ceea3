/** `acp-sidecar prune [ID]`: deletes what the retention options do not keep. */
import { limitsNothing } from '../../storage/prune.ts';
import type { Config } from '../config.ts';
import { CommandError } from './exit-code.ts';
import { runWriteCommand } from './write-store.ts';

/** @throws CommandError (usage) when there is no limit */
export function pruneStore(
  { storeDir, retain, retainEvents }: Config,
  sessionId: string | undefined,
  { dryRun, json }: { readonly dryRun: boolean; readonly json: boolean },
): Promise<void> {
  if (limitsNothing(retain) && limitsNothing(retainEvents)) {
    throw new CommandError('usage', 'there is no limit to prune by', 'give --retain or --retain-events');
  }
  const retention = { sessions: retain, events: retainEvents };
  return runWriteCommand(storeDir, { command: 'prune', sessionId, dryRun, json, retention });
}
