#!/bin/sh
# Builds nats-server and micro-peer into bin/, from the module proxy of Go. What is up to date is left as it is.
set -eu
cd "$(dirname "$0")"
version=v2.15.2
export CGO_ENABLED=0
# Several test programs may ask for a build at once.
mkdir -p bin
bin=$(cd bin && pwd -P)
exec 9>bin/.lock
if command -v flock >/dev/null; then flock 9; fi
if [ "$(cat bin/.version 2>/dev/null)" != "$version" ]; then
	GOBIN="$bin" go install "github.com/nats-io/nats-server/v2@$version" 9>&-
	echo "$version" >bin/.version
fi
cd micro
go build -buildvcs=false -trimpath -o "$bin/micro-peer" . 9>&-
