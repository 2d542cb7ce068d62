#!/bin/sh
# Builds server and client of grpc-go into bin. Needs Go 1.25+ and its module proxy, nothing else.
set -eu
cd "$(dirname "$0")"
CGO_ENABLED=0 go build -buildvcs=false -trimpath -o bin/ ./cmd/...
