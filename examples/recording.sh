#!/usr/bin/env bash
# Records three services over gRPC, and replays the recordings over frisbee: to the same version, without a difference,
# and to one with another price, whose changed fields are printed.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${CARGO_TARGET_DIR:-target}/debug
[ -x "$bin/recording" ] || cargo build --quiet -p examples --bin recording
[ -x "$bin/frpc" ] || cargo build --quiet -p frisbee-rpc-cli --bin frpc
files=$(mktemp -d)
server=
trap 'kill $server 2>/dev/null || true; rm -rf "$files"' EXIT

# Starts the next version with a price per unit, and sets `at` to its address.
serve() {
	# Empty before the wait: the last version has left its address there.
	: >"$files/out"
	"$bin/recording" serve "$1" tcp://127.0.0.1:0 >"$files/out" &
	server=$!
	timeout 10 sh -c 'until grep -q "^listening on" "$1"; do sleep 0.02; done' _ "$files/out"
	at=$(sed -n 's/^listening on //p' "$files/out")
}
# Equivalent to Ctrl-C.
stop() {
	kill -INT "$server"
	wait "$server"
	server=
}

"$bin/recording" record "$files"

serve 250
for service in orders prices stock; do
	"$bin/frpc" replay "$files/$service.frec" --to "$at" --diff
done
stop

serve 300
status=0
"$bin/frpc" replay "$files/orders.frec" --to "$at" --diff >"$files/diff" || status=$?
cat "$files/diff"
if [ "$status" != 3 ] || ! grep -q 'total.cents: "500" → "600"' "$files/diff"; then
	echo "the changed price is not in the comparison" >&2
	exit 1
fi
"$bin/frpc" replay "$files/orders.frec" --to "$at" --diff --ignore total.cents
stop
