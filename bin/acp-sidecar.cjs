#!/bin/sh
':' //; exec node --max-semi-space-size=4 "$0" "$@"
// Read by sh first, which starts node with a small young generation: it saves about 20 MiB under load, and the flag has
// no effect once node runs. `node bin/acp-sidecar.cjs` works too, without that.

// Every commit of the store occupies a thread of libuv's pool. Its size is read once, when it starts, and loading an
// ES module starts it; so it is set in this CommonJS file, the pool started, and the environment put back for the agent.
const given = process.env.UV_THREADPOOL_SIZE;
if (!(Number(given) >= 8)) process.env.UV_THREADPOOL_SIZE = '8';
require('node:fs').stat(__filename, () => {});
if (given === undefined) delete process.env.UV_THREADPOOL_SIZE;
else process.env.UV_THREADPOOL_SIZE = given;

import('../dist/bin/acp-sidecar.js').catch((error) => {
  const hint = error.code === 'ERR_MODULE_NOT_FOUND' ? ' (run `npm run build` first)' : '';
  process.stderr.write(`acp-sidecar: cannot start${hint}: ${error.stack}\n`);
  process.exitCode = 1;
});
