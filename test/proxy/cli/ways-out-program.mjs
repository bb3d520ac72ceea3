// Stands for the sidecar: an agent that does not want to end, and one way out, named by the argument.
import { AgentProcess } from '../../../dist/proxy/agent/agent-process.js';
import { watchWaysOut } from '../../../dist/proxy/cli/ways-out.js';
import { silentLogger } from '../../../dist/proxy/log.js';

watchWaysOut();
let text = '';
const { agent } = await AgentProcess.start({
  command: process.execPath,
  args: [`${import.meta.dirname}/../agent/stubborn-agent.mjs`],
  log: silentLogger(),
  onDrain: () => {},
  onExit: () => {},
  onData: (chunk) => {
    text += chunk;
    if (!text.includes('\n')) return;
    text = '';
    process.stdout.write(`${agent.pid}\n`);
    if (process.argv[2] === 'exit') process.exit(9);
    if (process.argv[2] === 'throw') throw new Error('a bug');
    if (process.argv[2] === 'reject') void Promise.reject(new Error('a bug'));
  },
});
// A server that drains for ever, for the test of a second signal.
if (process.argv[2] === 'drain') process.on('SIGTERM', () => process.stdout.write('draining\n'));
