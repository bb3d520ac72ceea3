#!/usr/bin/env node
// The health check of the image: asks /healthz of the first TCP address that ACP_SIDECAR_LISTEN names. Exit code 0: alive.
// An argument asks another probe: `health.cjs /readyz`.
const path = process.argv[2] ?? '/healthz';
const address = (process.env.ACP_SIDECAR_LISTEN ?? '')
  .split(',')
  .map((text) =>
    text
      .trim()
      .replace(/^wss?:\/\//, '')
      .replace(/\/.*$/, ''),
  )
  .find((text) => /:\d+$/.test(text));
const [, host, port] = /^(.*):(\d+)$/.exec(address ?? '127.0.0.1:7777');
const local = { '0.0.0.0': '127.0.0.1', '[::]': '::1' }[host] ?? host.replace(/^\[|\]$/g, '');
// It asks itself, so there is nothing to prove about the certificate.
const secure = Boolean(process.env.ACP_SIDECAR_TLS_CERT);
const { get } = require(secure ? 'node:https' : 'node:http');
const request = get({ host: local, port, path, timeout: 2500, rejectUnauthorized: false }, (response) => {
  response.resume();
  process.exitCode = response.statusCode === 200 ? 0 : 1;
});
request.on('timeout', () => request.destroy());
request.on('error', () => {
  process.exitCode = 1;
});
