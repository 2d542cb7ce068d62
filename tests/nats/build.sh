#!/bin/sh
# Builds nats-server into bin/, from the module proxy of Go. What is up to date is left as it is.
set -eu
cd "$(dirname "$0")"
version=v2.15.2
# Several test programs may ask for a build at once.
mkdir -p bin
exec 9>bin/.lock
if command -v flock >/dev/null; then flock 9; fi
if [ "$(cat bin/.version 2>/dev/null)" = "$version" ]; then exit; fi
GOBIN="$PWD/bin" CGO_ENABLED=0 go install "github.com/nats-io/nats-server/v2@$version" 9>&-
echo "$version" >bin/.version
