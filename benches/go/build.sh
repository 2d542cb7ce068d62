#!/bin/sh
# Builds servers and clients of grpc-go and of Twirp into bin. Needs Go 1.25+ and its module proxy, nothing else.
set -eu
cd "$(dirname "$0")"
export CGO_ENABLED=0
go run ./internal/twirpgen internal/twirpbench
go build -buildvcs=false -trimpath -o bin/ ./cmd/...
