/** The certificate and key of `wss://`: read at the start and again at SIGHUP. */
import { X509Certificate } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import { createSecureContext } from 'node:tls';

export interface TlsFiles {
  readonly cert: Buffer;
  readonly key: Buffer;
  readonly warnings: readonly string[];
}

const SOON_MS = 7 * 24 * 3600 * 1000;

/** Reads and tries them. @throws Error that says what is wrong with which file, without any of its content */
export function loadTlsFiles(certPath: string, keyPath: string): TlsFiles {
  const cert = readFileSync(certPath);
  const key = readFileSync(keyPath);
  try {
    createSecureContext({ cert, key });
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? 'unknown error';
    throw new Error(`--tls-cert ${certPath} and --tls-key ${keyPath} are not a PEM certificate and its key (${code})`, {
      cause: error,
    });
  }
  const warnings: string[] = [];
  const mode = statSync(keyPath).mode & 0o777;
  if ((mode & 0o077) !== 0) {
    warnings.push(`others can read the TLS key ${keyPath} (mode ${mode.toString(8).padStart(4, '0')}); chmod 0600 it`);
  }
  const expires = Date.parse(new X509Certificate(cert).validTo);
  if (expires < Date.now() + SOON_MS)
    warnings.push(`the TLS certificate is valid until ${new Date(expires).toISOString()}`);
  return { cert, key, warnings };
}
