#!/bin/sh
# Builds the server and the client of grpc-go into bin. Needs Go 1.25+ and its module proxy, nothing else.
set -eu
cd "$(dirname "$0")"
export CGO_ENABLED=0
go build -buildvcs=false -trimpath -o bin/ ./cmd/...
