/** `acp-sidecar verify [ID]`: looks at everything and names what is wrong. Also beside a running server. */
import { stringifyWire } from '../../protocol/wire-text.ts';
import { cacheDir } from '../../storage/history-dir.ts';
import { type Finding, verifyStore } from '../../storage/verify.ts';
import { exitCode } from './exit-code.ts';
import { flushed, printText, printWire, requireSession, withStore } from './read-store.ts';

/** Resolves to the exit code. */
export async function verify(storeDir: string, sessionId: string | undefined, json: boolean): Promise<number> {
  let code = exitCode('ok');
  await withStore(storeDir, async (log) => {
    const row = sessionId === undefined ? undefined : requireSession(log, sessionId);
    const result = await verifyStore({
      log,
      cacheDir: cacheDir(storeDir),
      row,
      found: (finding) => (json ? printWire(stringifyWire(finding)) : printText(sentence(finding))),
    });
    const { sessions, events, findings } = result;
    if (findings > 0) code = exitCode('store_failed');
    const summary = `${sessions} sessions, ${events} events: ${findings === 0 ? 'all is well' : `${findings} problems`}`;
    if (json) printWire(stringifyWire(result));
    else printText(summary);
    await flushed();
  });
  return code;
}

function sentence({ sessionId, part, seq, detail }: Finding): string {
  const where = part === 'log' ? `event ${seq}` : part;
  return `session ${JSON.stringify(sessionId)}: ${where}: ${detail}`;
}
