#!/usr/bin/env bash
# Builds the contenders in Rust, each by itself, and proves that none has features that another turns on: build.sh [PROFILE], by default
# `release`.
set -euo pipefail
cd "$(dirname "$0")"
for contender in tonic connect tarpc hyper axum json jsonrpsee; do
	tree=$(cargo tree --quiet -p peers --no-default-features --features "$contender" --edges features,normal --prefix none)
	if [ "$contender" != tarpc ] && grep -E '^(tarpc v|tracing feature "log|tracing-core feature "log)' <<<"$tree"; then
		echo "$contender would be built with what only tarpc wants"
		exit 1
	fi
	cargo build --quiet --profile "${1:-release}" -p peers --no-default-features --features "$contender" --bins
done
