#!/bin/sh
# Builds the program in a checkout and leaves only what it needs at run time. Used by the Dockerfile; works anywhere.
set -eu
cd "$(dirname "$0")/.."
npm ci --no-audit --no-fund
npm run build:shipped
npm prune --omit=dev --no-audit --no-fund
