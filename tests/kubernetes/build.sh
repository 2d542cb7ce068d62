#!/bin/sh
# Builds kube-apiserver into bin/, from the module proxy of Go. What is up to date is left as it is.
#
# It takes several minutes and 2 GB of memory, so no other script runs it. Without it, tests replay what it answered:
# crates/frpc-kubernetes/tests/recorded.
set -eu
cd "$(dirname "$0")"
mkdir -p bin
exec 9>bin/.lock
if command -v flock >/dev/null; then flock 9; fi
if cmp -s go.sum bin/.version; then exit; fi
CGO_ENABLED=0 nice go build -mod=readonly -trimpath -ldflags='-s -w' -o bin/kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver 9>&-
cp go.sum bin/.version
