import { isObject, type JsonObject } from '../json-rpc.ts';

/** The text of a text chunk; undefined for other blocks and updates. */
export function chunkText(update: JsonObject): string | undefined {
  const content = update['content'];
  return isObject(content) && typeof content['text'] === 'string' ? content['text'] : undefined;
}
