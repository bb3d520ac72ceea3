// An agent that refuses to end: it ignores SIGTERM and the end of stdin, and so does its grandchild, which also holds
// stdout. Prints the grandchild's pid. Told "exit" on stdin, the leader exits and leaves the grandchild.
import { spawn } from 'node:child_process';

process.on('SIGTERM', () => {});
setInterval(() => {}, 1000);
if (process.argv[2] !== 'grandchild') {
  const child = spawn(process.execPath, [process.argv[1], 'grandchild'], { stdio: ['ignore', 'pipe', 'inherit'] });
  // The grandchild says when it ignores SIGTERM; it holds our stdout through fd 3 of the second spawn below.
  child.stdout.once('data', () => {
    const holder = spawn('sh', ['-c', 'trap "" TERM; echo $$; while :; do sleep 1; done'], {
      stdio: ['ignore', 'inherit', 'inherit'],
    });
    holder.unref();
  });
  process.stdin.on('data', (data) => {
    if (String(data).includes('exit')) {
      process.stderr.write('leaving\nlast words\n');
      process.exit(3);
    }
  });
} else {
  process.stdout.write('ready\n');
}
