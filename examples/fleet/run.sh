#!/usr/bin/env bash
# Starts a nats-server, three replicas of a service, and a client with the admin page. Then it kills, terminates and
# replaces replicas, and kills the nats-server. It fails if one of the client's idempotent calls has failed.
#
# Usage: run.sh [ROUNDS]
# A round replaces one replica, killed with SIGKILL or ended with SIGTERM in turn. Default: 6 rounds, about 10 seconds.
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-6}
bin=${CARGO_TARGET_DIR:-target}/debug
nats=$(command -v nats-server || echo tests/nats/bin/nats-server)
if [ ! -x "$nats" ]; then
	echo "skipped: nats-server is not installed; tests/nats/build.sh installs it"
	exit
fi
[ -x "$bin/fleet_replica" ] && [ -x "$bin/fleet_client" ] ||
	cargo build --quiet -p examples --bin fleet_replica --bin fleet_client

work=$(mktemp -d)
declare -A replicas=()
server=
client=
finish() {
	# SIGKILL: nothing may outlive this script.
	for process in "${replicas[@]}" $client $server; do kill -KILL "$process" 2>/dev/null || true; done
	wait 2>/dev/null || true
	rm -rf "$work"
}
trap finish EXIT

# Waits for a line in a file: line FILE PATTERN
line() {
	if ! timeout 30 sh -c 'until grep -qs -e "$2" "$1"; do sleep 0.02; done' _ "$1" "$2"; then
		echo "no line \"$2\" in 30 s:" >&2
		tail -n 20 "$1" >&2
		exit 1
	fi
}
start_nats() {
	"$nats" --jetstream --store_dir "$work/store" --addr 127.0.0.1 --port "$1" >"$work/nats.log" 2>&1 &
	server=$!
	line "$work/nats.log" "Server is ready"
}
# Starts a replica under a place (a, b, c) and a name: start_replica PLACE NAME
start_replica() {
	"$bin/fleet_replica" "nats://127.0.0.1:$port" "$2" >"$work/$2.log" 2>&1 &
	replicas[$1]=$!
	line "$work/$2.log" "is announced"
}
# Waits until the client has made 2,000 further calls.
more_calls() {
	local before
	before=$(grep -c "^calls:" "$work/client.log" || true)
	if ! timeout 60 sh -c 'until [ "$(grep -c "^calls:" "$1")" -ge "$2" ]; do sleep 0.02; done' \
		_ "$work/client.log" $((before + 2)); then
		echo "the client makes no calls:" >&2
		tail -n 20 "$work/client.log" >&2
		exit 1
	fi
}

start_nats -1
port=$(sed -n 's/.*Listening for client connections on 127\.0\.0\.1:\([0-9]*\).*/\1/p' "$work/nats.log")
echo "nats-server on port $port"
for place in a b c; do
	start_replica $place $place-0
	cat "$work/$place-0.log"
done
"$bin/fleet_client" "nats+direct://127.0.0.1:$port/warehouse" >"$work/client.log" 2>&1 &
client=$!
for place in a b c; do line "$work/client.log" "first answer of $place-0"; done
page=$(sed -n 's/^admin page: //p' "$work/client.log")
echo "admin page: $page"
if command -v curl >/dev/null; then
	curl -sS --fail --max-time 10 -o "$work/page.html" "$page"
	echo "the page has $(wc -c <"$work/page.html") bytes"
fi

places=(a b c)
for round in $(seq "$rounds"); do
	place=${places[$(((round - 1) % 3))]}
	old=${replicas[$place]}
	if ((round % 2)); then
		kill -KILL "$old"
		how="killed"
	else
		kill -TERM "$old"
		how="terminated"
	fi
	wait "$old" 2>/dev/null || true
	more_calls
	start_replica "$place" "$place-$round"
	line "$work/client.log" "first answer of $place-$round"
	echo "round $round: replica $place was $how and replaced"
	if ((round == 3)); then
		kill -KILL "$server"
		wait "$server" 2>/dev/null || true
		more_calls
		start_nats "$port"
		echo "nats-server was killed and restarted; direct calls went on"
	fi
done

kill -INT "$client"
result=0
wait "$client" || result=$?
grep "idempotent calls" "$work/client.log" || tail -n 20 "$work/client.log"
client=
for process in "${replicas[@]}"; do kill -TERM "$process"; done
wait "${replicas[@]}"
replicas=()
if [ "$result" -ne 0 ]; then
	grep "a call failed" "$work/client.log" >&2 || true
	exit "$result"
fi
echo "no idempotent call failed"
