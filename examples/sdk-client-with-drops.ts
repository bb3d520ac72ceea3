/**
 * An ordinary client of the ACP SDK that survives a bad network by one changed line: its stream is `resumableStream`.
 * Between it and the sidecar is a TCP proxy that cuts the connection again and again while the agent answers.
 *
 * Exits 0 when every word came once, 1 otherwise.
 */
import { type Socket, connect, createServer } from 'node:net';
import { client, type PromptResponse } from '@agentclientprotocol/sdk';
import { resumableStream } from 'acp-sidecar/client';
import { ANSWER } from './answer.ts';
import { runExample, startSidecar } from './sidecar-process.ts';

const CUT_EVERY_MS = 400;

/** A proxy in front of a port, and how to cut what goes through it. */
async function badNetwork(port: number): Promise<{ port: number; cut: () => void; close: () => void }> {
  const sockets = new Set<Socket>();
  const server = createServer((inside) => {
    const outside = connect(port, '127.0.0.1');
    for (const socket of [inside, outside]) {
      sockets.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', () => sockets.delete(socket));
    }
    inside.pipe(outside).pipe(inside);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  const cut = (): void => {
    for (const socket of sockets) socket.destroy();
  };
  const close = (): void => {
    cut();
    server.close();
  };
  return { port: typeof address === 'object' && address ? address.port : 0, cut, close };
}

async function main(): Promise<boolean> {
  const sidecar = await startSidecar();
  const network = await badNetwork(Number(new URL(sidecar.url).port));
  let text = '';
  let drops = 0;
  const stream = resumableStream({
    url: `ws://127.0.0.1:${network.port}/acp`,
    onState: ({ phase, reason }) => {
      if (phase === 'waiting') process.stdout.write(`\n--- drop ${++drops} (${reason ?? ''})\n`);
    },
  });
  const { agent } = client({ name: 'example' })
    .onNotification('session/update', ({ params: { update } }) => {
      if (update.sessionUpdate !== 'agent_message_chunk' || update.content.type !== 'text') return;
      text += update.content.text;
      process.stdout.write(update.content.text);
    })
    .connect(stream);
  await agent.request('initialize', { protocolVersion: 1, clientCapabilities: {} });
  const { sessionId } = await agent.request('session/new', { cwd: process.cwd(), mcpServers: [] });
  const timer = setInterval(network.cut, CUT_EVERY_MS);
  const prompt = [{ type: 'text' as const, text: 'Tell me about the railway.' }];
  const { stopReason } = await agent.request<PromptResponse>('session/prompt', { sessionId, prompt });
  clearInterval(timer);
  process.stdout.write(`\n--- ${stopReason} after ${drops} drops\n`);
  stream.close();
  network.close();
  await sidecar.stop();
  return text === ANSWER && drops > 1;
}

await runExample(main);
