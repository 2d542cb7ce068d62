#!/bin/sh
# Builds the client that protoc-gen-twirp made for Twirp's own example into bin. Needs Go 1.25+ and its module proxy, nothing else.
set -eu
cd "$(dirname "$0")"
export CGO_ENABLED=0
mkdir -p bin
# Several test programs may ask for a build at once.
exec 9>bin/.lock
if command -v flock >/dev/null; then flock 9; fi
go build -buildvcs=false -trimpath -o bin/ ./... 9>&-
