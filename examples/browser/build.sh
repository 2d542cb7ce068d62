#!/bin/sh
# Compiles the page and the client library.
set -eu
cd "$(dirname "$0")/../../clients/typescript"
[ -d node_modules ] || npm ci --no-audit --no-fund --silent
npx tsc
npx tsc -p ../../examples/browser
