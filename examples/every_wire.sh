#!/usr/bin/env bash
# Calls the greeter of the example every_wire in seven ways on one port. Usage: every_wire.sh [HOST:PORT]
# Without an address, it starts the server. Ways with a missing tool are reported as skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
every_wire=${CARGO_TARGET_DIR:-target}/debug/every_wire
[ -x "$every_wire" ] || cargo build --quiet -p examples --bin every_wire
foreign=tests/foreign
server=
at=${1:-}
if [ -z "$at" ]; then
	out=$(mktemp)
	"$every_wire" serve tcp://127.0.0.1:0 >"$out" &
	server=$!
	trap 'kill $server 2>/dev/null || true; rm -f "$out"' EXIT
	timeout 10 sh -c 'until grep -q "^listening on" "$1"; do sleep 0.02; done' _ "$out"
	at=$(sed -n 's|^listening on tcp://||p' "$out")
fi
path=helloworld.Greeter/SayHello

# Makes a call and checks the answer: way NAME PROGRAM ARGUMENT...
way() {
	local name=$1 program=$2 answer
	shift 2
	if ! command -v "$program" >/dev/null; then
		echo "$name: skipped, $program is not installed"
		return
	fi
	answer=$("$program" "$@" | tr -d '\n')
	echo "$name: $answer"
	case $answer in *"Hello $name!"*) ;; *) echo "that is no greeting" >&2; exit 1 ;; esac
}
# Prints the first installed program: from the system, or from tests/foreign/build.sh.
tool() {
	for program in "$@"; do
		if command -v "$program" >/dev/null; then echo "$program"; return; fi
	done
	echo "$1"
}

way frisbee "$every_wire" call "tcp://$at" frisbee
way gRPC "$every_wire" call "grpc://$at" gRPC
way gRPC-Web "$every_wire" call "grpc-web+http://$at" gRPC-Web
way Connect curl -sS "http://$at/$path" -H 'content-type: application/json' -d '{"name": "Connect"}'
way Twirp curl -sS "http://$at/twirp/$path" -H 'content-type: application/json' -d '{"name": "Twirp"}'
way grpcurl "$(tool grpcurl $foreign/bin/grpcurl)" -plaintext -d '{"name": "grpcurl"}' "$at" "$path"
way buf "$(tool buf $foreign/node_modules/.bin/buf)" curl --protocol connect --http2-prior-knowledge -d '{"name": "buf"}' "http://$at/$path"

if [ -n "$server" ]; then
	# Equivalent to Ctrl-C.
	kill -INT "$server"
	wait "$server"
fi
