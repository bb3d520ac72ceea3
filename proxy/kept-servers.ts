/**
 * `mcpServers` of the newest new, load or resume of each session, wire text, for the next time that it is bound. Memory
 * only, they may hold secrets. A session whose servers were forgotten is bound without any; a client that
 * names them then is told in `notApplied`.
 */
import { createHash } from 'node:crypto';
import { ownText } from '../protocol/wire-text.ts';
import { boundHit, KEPT_SERVERS_BYTES } from './bounds.ts';

/** What two texts of servers are compared by, of any length. */
export function serversDigest(text: string): string {
  return createHash('sha256').update(text, 'latin1').digest('base64');
}

export class KeptServers {
  readonly #texts = new Map<string, string>();
  #bytes = 0;

  get(sessionId: string): string | undefined {
    return this.#texts.get(sessionId);
  }

  set(sessionId: string, text: string): void {
    this.delete(sessionId);
    this.#texts.set(sessionId, ownText(text));
    this.#bytes += text.length;
    for (const oldest of this.#texts.keys()) {
      if (this.#bytes <= KEPT_SERVERS_BYTES || oldest === sessionId) break;
      boundHit('kept_servers');
      this.delete(oldest);
    }
  }

  delete(sessionId: string): void {
    this.#bytes -= this.#texts.get(sessionId)?.length ?? 0;
    this.#texts.delete(sessionId);
  }
}
