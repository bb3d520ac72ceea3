import { request } from 'node:http';

export interface HttpAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: string;
}

/** A plain HTTP request to the address of a WebSocket endpoint. */
export function ask(
  wsUrl: string,
  path: string,
  headers: Readonly<Record<string, string>> = {},
  method = 'GET',
): Promise<HttpAnswer> {
  const { hostname, port } = new URL(wsUrl);
  return new Promise((resolve, reject) => {
    const sent = request({ host: hostname, port, path, method, headers }, (response) => {
      let body = '';
      response.setEncoding('utf8').on('data', (text: string) => (body += text));
      response.on('end', () => resolve({ status: response.statusCode ?? 0, headers: response.headers, body }));
    });
    sent.on('error', reject);
    sent.end();
  });
}

export interface Scraped {
  readonly types: ReadonlyMap<string, string>;
  readonly helps: ReadonlyMap<string, string>;
  /** By the text before the value: `name` or `name{label="value"}`. */
  readonly samples: ReadonlyMap<string, number>;
}

const LABEL = '[a-z_]+="(?:[^"\\\\\\n]|\\\\[\\\\"n])*"';
const SAMPLE = new RegExp(`^([a-z_]+(?:\\{${LABEL}(?:,${LABEL})*\\})?) (-?(?:[0-9.]+(?:e[+-]?[0-9]+)?)|NaN)$`);

/** Reads the text format as strictly as it is specified. @throws Error that names a line which is not in it */
export function parseExposition(text: string): Scraped {
  const types = new Map<string, string>();
  const helps = new Map<string, string>();
  const samples = new Map<string, number>();
  if (!text.endsWith('\n')) throw new Error('the last line has no end');
  for (const line of text.trimEnd().split('\n')) {
    const comment = /^# (HELP|TYPE) ([a-z_]+) (.+)$/.exec(line);
    if (comment) {
      const [, kind, name = '', rest = ''] = comment;
      const into = kind === 'HELP' ? helps : types;
      if (into.has(name)) throw new Error(`${name} is described twice`);
      into.set(name, rest);
      continue;
    }
    const sample = SAMPLE.exec(line);
    if (!sample) throw new Error(`not a line of the format: ${line}`);
    const [, key = '', value = ''] = sample;
    if (samples.has(key)) throw new Error(`${key} is there twice`);
    const name = key.replace(/\{.*/, '').replace(/_(bucket|sum|count)$/, (end, _kind: string, at: number) => {
      return types.get(key.slice(0, at)) === 'histogram' ? '' : end;
    });
    if (!types.has(name)) throw new Error(`${key} has no type before it`);
    samples.set(key, Number(value));
  }
  return { types, helps, samples };
}

export async function scrape(wsUrl: string, headers: Readonly<Record<string, string>> = {}): Promise<Scraped> {
  const { status, body } = await ask(wsUrl, '/metrics', headers);
  if (status !== 200) throw new Error(`/metrics answered ${status}`);
  return parseExposition(body);
}
