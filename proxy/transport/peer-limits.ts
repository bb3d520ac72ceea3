/**
 * What strangers cost before they are known: how many connections there are, how many handshakes are under way, and how
 * fast one address may fail. Whoever is admitted gets its attempt back, so only failures count against an address.
 */

export interface PeerLimitsOptions {
  readonly maxConnections: number;
  /** Connections that have not been admitted yet. */
  readonly maxHandshakes: number;
  /** Failures that an address may have at once; undefined: addresses are not told apart. */
  readonly burst: number | undefined;
  /** Failures that are forgiven per second. */
  readonly perSecond: number;
  readonly now: () => number;
}

/** Addresses remembered; the longest forgiven ones are dropped first. */
const MAX_ADDRESSES = 10_000;

export type Turned = 'connections' | 'handshakes' | 'rate';

export class PeerLimits {
  readonly #options: PeerLimitsOptions;
  readonly #buckets = new Map<string, { tokens: number; at: number }>();
  #connections = 0;
  #handshakes = 0;

  constructor(options: PeerLimitsOptions) {
    this.#options = options;
  }

  get connections(): number {
    return this.#connections;
  }

  get handshakes(): number {
    return this.#handshakes;
  }

  /** A stranger has come. Undefined: it may go on, and `left` must be called when it is gone or admitted. */
  arrive(address: string): Turned | undefined {
    if (this.#handshakes >= this.#options.maxHandshakes) return 'handshakes';
    if (!this.#take(bucketKey(address))) return 'rate';
    this.#handshakes++;
    return undefined;
  }

  /** The handshake is over, one way or the other. */
  left(): void {
    this.#handshakes--;
  }

  /** Its attempt does not count. */
  forgive(address: string): void {
    const bucket = this.#buckets.get(bucketKey(address));
    if (bucket && this.#options.burst !== undefined) bucket.tokens = Math.min(this.#options.burst, bucket.tokens + 1);
  }

  /** An admitted peer becomes a connection. False: there are too many. Call `closed` when it ends. */
  connect(): boolean {
    if (this.#connections >= this.#options.maxConnections) return false;
    this.#connections++;
    return true;
  }

  closed(): void {
    this.#connections--;
  }

  #take(key: string): boolean {
    const { burst, perSecond, now } = this.#options;
    if (burst === undefined) return true;
    const at = now();
    const bucket = this.#buckets.get(key);
    const tokens = bucket ? Math.min(burst, bucket.tokens + (Math.max(0, at - bucket.at) / 1000) * perSecond) : burst;
    // Newest last, so that the first is the one to forget.
    this.#buckets.delete(key);
    this.#buckets.set(key, { tokens: tokens < 1 ? tokens : tokens - 1, at });
    if (this.#buckets.size > MAX_ADDRESSES) {
      const [oldest] = this.#buckets.keys();
      if (oldest !== undefined) this.#buckets.delete(oldest);
    }
    return tokens >= 1;
  }
}

/** One key for what one owner has: an IPv4 address, or the /64 of an IPv6 address. */
export function bucketKey(address: string): string {
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  if (mapped !== undefined) return mapped;
  if (!address.includes(':')) return address;
  const [head = '', tail] = (address.split('%')[0] ?? '').split('::');
  const left = head === '' ? [] : head.split(':');
  const right = tail === undefined || tail === '' ? [] : tail.split(':');
  const zeros = tail === undefined ? 0 : Math.max(0, 8 - left.length - right.length);
  const groups = [...left, ...Array<string>(zeros).fill('0'), ...right];
  return groups
    .slice(0, 4)
    .map((group) => group.toLowerCase().replace(/^0+(?=.)/, ''))
    .join(':');
}
