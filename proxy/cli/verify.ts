/** `acp-sidecar verify [ID]`: looks at everything and names what is wrong. Also beside a running server. */
import { stringifyWire } from '../../protocol/wire-text.ts';
import { cacheDir } from '../../storage/history-dir.ts';
import { storeOwner } from '../../storage/store-lock.ts';
import { type Finding, verifyStore, type VerifyResult } from '../../storage/verify.ts';
import { exitCode } from './exit-code.ts';
import { flushed, printText, printWire, requireSession, withStore } from './read-store.ts';

interface Look {
  readonly findings: readonly Finding[];
  readonly result: VerifyResult;
}

/** Resolves to the exit code. */
export async function verify(storeDir: string, sessionId: string | undefined, json: boolean): Promise<number> {
  let look = await lookAt(storeDir, sessionId);
  // A server may have deleted or pruned what was being looked at: what is wrong must be wrong twice.
  if (look.findings.length > 0 && (await storeOwner(storeDir)) !== undefined) look = await lookAt(storeDir, sessionId);
  const { findings, result } = look;
  const { sessions, events } = result;
  for (const finding of findings) {
    if (json) printWire(stringifyWire(finding));
    else printText(sentence(finding));
  }
  const verdict = findings.length === 0 ? 'all is well' : `${findings.length} problems`;
  if (json) printWire(stringifyWire(result));
  else printText(`${sessions} sessions, ${events} events: ${verdict}`);
  await flushed();
  return exitCode(findings.length === 0 ? 'ok' : 'store_failed');
}

function lookAt(storeDir: string, sessionId: string | undefined): Promise<Look> {
  return withStore(storeDir, async (log) => {
    const row = sessionId === undefined ? undefined : requireSession(log, sessionId);
    const findings: Finding[] = [];
    const found = (finding: Finding): void => void findings.push(finding);
    const result = await verifyStore({ log, cacheDir: cacheDir(storeDir), row, found });
    return { findings, result };
  });
}

function sentence({ sessionId, part, seq, detail }: Finding): string {
  const where = part === 'log' ? `event ${seq}` : part;
  return `session ${JSON.stringify(sessionId)}: ${where}: ${detail}`;
}
