/**
 * What all listeners share: the rule of who may come in, the limits for strangers, and the certificate. `reload` reads
 * the files again; a file that is wrong then changes nothing and is named in the log.
 */
import type { Server as HttpsServer } from 'node:https';
import { ADDRESS_BURST, ADDRESS_PER_SECOND, MAX_HANDSHAKES } from '../bounds.ts';
import { CommandError } from '../cli/exit-code.ts';
import type { Config } from '../config.ts';
import type { Connection } from '../connection.ts';
import type { Logger } from '../log.ts';
import type { AccessRule } from './access.ts';
import { PeerLimits } from './peer-limits.ts';
import { type TlsFiles, loadTlsFiles } from './tls.ts';
import { type Token, loadTokenFile } from './token-file.ts';

export class Door {
  readonly limits: PeerLimits;
  readonly #config: Config;
  readonly #logger: Logger;
  readonly #secure = new Set<HttpsServer>();
  #rule: AccessRule;
  #tls: TlsFiles | undefined;

  /** @throws CommandError (usage) when a file cannot be used */
  constructor(config: Config, logger: Logger) {
    this.#config = config;
    this.#logger = logger;
    if ((config.tlsCert === undefined) !== (config.tlsKey === undefined)) {
      throw new CommandError('usage', '--tls-cert and --tls-key must be given together');
    }
    const { tokens, tls } = this.#read((error) => {
      throw new CommandError('usage', error.message);
    });
    this.#rule = this.#ruleOf(tokens);
    this.#tls = tls;
    this.limits = new PeerLimits({
      maxConnections: config.maxConnections,
      maxHandshakes: MAX_HANDSHAKES,
      // A proxy in front is the peer of everybody: whoever fails there would shut out the others.
      burst: config.insecurePlaintext ? undefined : ADDRESS_BURST,
      perSecond: ADDRESS_PER_SECOND,
      now: Date.now,
    });
  }

  get rule(): AccessRule {
    return this.#rule;
  }

  get tls(): TlsFiles | undefined {
    return this.#tls;
  }

  /** A server whose certificate follows the files. */
  secured(server: HttpsServer): void {
    this.#secure.add(server);
    server.on('close', () => this.#secure.delete(server));
  }

  /** SIGHUP. Connections whose token is gone, or now means something else, are closed. */
  reload(connections: Iterable<Connection>): void {
    let failed = false;
    const { tokens, tls } = this.#read((error) => {
      failed = true;
      this.#logger.error({ err: error.message }, 'reload: the file is not used, what was read before stays');
    });
    if (tls) {
      this.#tls = tls;
      for (const server of this.#secure) server.setSecureContext({ cert: tls.cert, key: tls.key });
    }
    let closed = 0;
    if (tokens) {
      const before = new Map(this.#rule.tokens?.map((token) => [token.tokenId, token]));
      const after = new Map(tokens.map((token) => [token.tokenId, token]));
      this.#rule = this.#ruleOf(tokens);
      for (const connection of connections) {
        const { tokenId } = connection;
        if (tokenId === undefined || sameRights(before.get(tokenId), after.get(tokenId))) continue;
        closed++;
        connection.transport.close(1008, 'the token was withdrawn or changed');
      }
    }
    if (!failed) this.#logger.info({ tokens: tokens?.length, tls: tls !== undefined, closed }, 'reloaded');
  }

  #ruleOf(tokens: readonly Token[] | undefined): AccessRule {
    return {
      tokens,
      allowOrigins: this.#config.allowOrigins,
      loopbackHostsOnly: tokens === undefined && !this.#config.insecurePlaintext,
    };
  }

  #read(failed: (error: Error) => void): { tokens: readonly Token[] | undefined; tls: TlsFiles | undefined } {
    const { tokenFile, tlsCert, tlsKey } = this.#config;
    let tokens: readonly Token[] | undefined;
    let tls: TlsFiles | undefined;
    const warnings: string[] = [];
    const attempt = (read: () => void): void => {
      try {
        read();
      } catch (error) {
        failed(error as Error);
      }
    };
    attempt(() => {
      if (tokenFile === undefined) return;
      const file = loadTokenFile(tokenFile);
      tokens = file.tokens;
      warnings.push(...file.warnings);
    });
    attempt(() => {
      if (tlsCert === undefined || tlsKey === undefined) return;
      tls = loadTlsFiles(tlsCert, tlsKey);
      warnings.push(...tls.warnings);
    });
    for (const warning of warnings) this.#logger.warn(warning);
    return { tokens, tls };
  }
}

function sameRights(before: Token | undefined, after: Token | undefined): boolean {
  if (!before || !after) return false;
  const sessions = (token: Token): string => (token.sessions ? [...token.sessions].sort().join(',') : '*');
  return before.role === after.role && before.name === after.name && sessions(before) === sessions(after);
}
