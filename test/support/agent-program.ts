/**
 * A test agent as a real process.
 *
 *   agent-program.js bridge SOCKET    every byte decided by the test at the other end of SOCKET (`ScriptedAgent`)
 *   agent-program.js fault            plays turns with tools and approvals, and strikes once (`fault-agent.ts`)
 *   agent-program.js stream           plays the commands in its prompts by itself (`stream-agent.ts`)
 *
 * Like a real agent it ends when its stdin ends, unless it was told to be stubborn.
 */
import { spawn } from 'node:child_process';
import { connect } from 'node:net';
import { frameHeader, frameReader } from './bridge-frames.ts';
import { runFaultAgent } from './fault-agent.ts';
import { runStreamAgent } from './stream-agent.ts';

function runBridge(path: string): void {
  const socket = connect(path);
  const send = (type: 'H' | 'I' | 'Z' | 'S', body: Buffer): void => {
    socket.write(Buffer.concat([frameHeader(type, body.length), body]));
  };
  let stubborn = false;
  send('H', Buffer.from(JSON.stringify({ pid: process.pid, cwd: process.cwd(), env: process.env })));
  process.stdin.on('data', (bytes: Buffer) => send('I', bytes));
  process.stdin.on('end', () => {
    send('Z', Buffer.alloc(0));
    if (!stubborn) socket.end(() => process.exit(0));
  });
  process.on('SIGTERM', () => {
    send('S', Buffer.from('SIGTERM'));
    if (!stubborn) socket.end(() => process.exit(143));
  });
  const read = frameReader((type, body) => {
    switch (type) {
      case 'O':
        if (!process.stdout.write(body)) {
          socket.pause();
          process.stdout.once('drain', () => socket.resume());
        }
        break;
      case 'E':
        process.stderr.write(body);
        break;
      case 'Q':
        process.stdout.end();
        break;
      case 'X':
        // What was written before the order to exit must reach the reader first.
        process.stdout.write('', () => process.exit(Number(body.toString())));
        break;
      case 'C':
        spawn(process.execPath, ['-e', 'setInterval(() => undefined, 1000)'], { stdio: 'ignore' });
        break;
      case 'G':
        stubborn = true;
        break;
      case 'H':
      case 'I':
      case 'Z':
      case 'S':
        throw new Error(`frame ${type} goes the other way`);
    }
  });
  socket.on('data', read);
  socket.on('close', () => process.exit(0));
  socket.on('error', () => process.exit(1));
}

process.stdout.on('error', () => process.exit(0));
const [mode, path = ''] = process.argv.slice(2);
if (mode === 'bridge') runBridge(path);
else if (mode === 'fault') runFaultAgent();
else runStreamAgent();
